"""The weight map: which tensors of the source make up each tensor of the target, and what is left on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from typing import Any

from reprod_log.errors import listed
from reprod_log.layers.layouts import Piece, TensorView
from reprod_log.layers.transform import Shape
from reprod_log.pairing.names import near
from reprod_log.pairing.order import Ambiguity
from reprod_log.pairing.units import BARE, Part, Survey, Unit, UnitPair, survey
from reprod_log.recording import Array


@dataclass(frozen=True)
class Move:
    """One tensor of the target and the view of source tensors that fills it."""

    target: str
    shape: Shape
    view: TensorView
    pair: UnitPair

    @property
    def sources(self) -> tuple[str, ...]:
        """The source tensors that are read."""
        return self.view.candidate

    def apply(self, read: Callable[[str], Array]) -> Array:
        """The array for the target, made of the arrays that `read` gives for source tensors."""
        return self.view.apply([read(name) for name in self.sources], shape=self.shape)


@dataclass(frozen=True)
class TransferPlan:
    """Everything that moves, in the order of the target's units."""

    pairs: tuple[UnitPair, ...]
    moves: tuple[Move, ...]

    def apply(self, read: Callable[[str], Array]) -> dict[str, Array]:
        """The target's arrays by name, made of the source's."""
        return {move.target: move.apply(read) for move in self.moves}


def make_plan(pairs: Iterable[UnitPair], target_shapes: Mapping[str, Shape]) -> TransferPlan:
    """The plan that follows from paired units; a target tensor that cannot be filled wholly does not move."""
    pairs = tuple(pairs)
    filled: dict[str, dict[int, tuple[Part, Part, UnitPair]]] = {}
    for pair in pairs:
        for part in pair.target.parts:
            source = pair.source.part(part.canonical)
            if source is not None and source.shape == part.shape:
                filled.setdefault(part.tensor, {})[part.index] = (part, source, pair)
    moves = []
    for tensor, by_index in filled.items():
        part, _, pair = next(iter(by_index.values()))
        if len(by_index) == part.transform.parts:
            sources = [by_index[index][1] for index in sorted(by_index)]
            moves.append(Move(tensor, target_shapes[tensor], _view(tensor, part, sources, pair), pair))
    return TransferPlan(pairs, tuple(moves))


def _view(tensor: str, part: Part, sources: list[Part], pair: UnitPair) -> TensorView:
    stored = list(dict.fromkeys(source.tensor for source in sources))
    pieces = tuple(Piece(stored.index(source.tensor), source.index, source.transform) for source in sources)
    return TensorView(pair.target.title, tensor, tuple(stored), pieces, part.transform)


@dataclass(frozen=True)
class Leftovers:
    """Names left on either side, those allowed to be, and a reason for each."""

    in_source: tuple[str, ...]
    in_target: tuple[str, ...]
    allowed: tuple[str, ...]
    reasons: dict[str, str]


def find_leftovers(
    source: Survey,
    target: Survey,
    plan: TransferPlan,
    undecided: Sequence[Ambiguity],
    allow_left: Iterable[str],
) -> Leftovers:
    """Everything that the plan does not move. A tied tensor that moves under another name is not left."""
    patterns = (allow_left,) if isinstance(allow_left, str) else tuple(allow_left)
    here = _unused(source, {name for move in plan.moves for name in move.sources})
    there = _unused(target, {move.target for move in plan.moves})
    allowed = [name for name in (*there, *here) if any(fnmatchcase(name, pattern) for pattern in patterns)]
    allowed += [*_bookkeeping(target, there), *_bookkeeping(source, here)]
    reasons: dict[str, str] = {}
    partners = {pair.source.path: pair.target for pair in plan.pairs}
    back = {pair.target.path: pair.source for pair in plan.pairs}
    for names, own, other, partner in ((here, source, target, partners), (there, target, source, back)):
        free = there if own is source else here
        for unit in own.units:
            for name in unit.tensors:
                if name in names:
                    reasons[name] = _reason(name, unit, other, partner.get(unit.path), undecided, free)
    return Leftovers(_without(here, allowed), _without(there, allowed), tuple(dict.fromkeys(allowed)), reasons)


def _bookkeeping(survey: Survey, names: Iterable[str]) -> list[str]:
    """Integer tensors that are never trained (indices, position ids, counters): many models do not keep them at all."""
    return [
        name for name in names if name not in survey.trained and survey.dtype(name).startswith(("int", "uint", "bool"))
    ]


def loose_buffers(model: Any) -> list[str]:
    """Names of the tensors that are not trained and belong to no known layer, as patterns that fit nothing else."""
    found = survey(model)
    names = [unit.path for unit in found.units if unit.kind == BARE]
    return [escape(name) for name in names if name not in found.trained]


def _unused(survey: Survey, used: set[str]) -> tuple[str, ...]:
    held = {survey.first_name(name) for name in used}
    required = {part.tensor: None for unit in survey.units for part in unit.parts if not part.optional}
    return tuple(name for name in required if survey.first_name(name) not in held)


def _without(names: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    kept = set(allowed)
    return tuple(name for name in names if name not in kept)


def _reason(
    name: str, unit: Unit, other: Survey, partner: Unit | None, undecided: Sequence[Ambiguity], free: Sequence[str]
) -> str:
    for group in undecided:
        if any(unit.path in (one.path, one.owner) for one in (*group.sources, *group.targets)):
            one, two = (listed([u.path for u in side], most=3) for side in (group.sources, group.targets))
            return f"{one} and {two} ({group.sources[0].describe()}) fit each other in more than one way"
    if partner is not None:
        return f"'{partner.path}', the partner of '{unit.path}', has nothing to match '{name}'"
    same_path = next((one for one in other.units if one.path == unit.path), None)
    if same_path is not None:
        return f"'{unit.path}' is {unit.describe()} here and {same_path.describe()} there"
    close = near(name, free)
    return f"near '{name}': {listed(close)}" if close else f"nothing fits '{unit.path}' ({unit.describe()})"


def tensor_views(units: Sequence[UnitPair], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorView]:
    """For each tensor of the reference the view of candidate tensors that equals it; `shapes` are the reference's."""
    # A plan fills its target from its source; here the reference is to be filled from the candidate.
    swapped = [UnitPair(pair.target, pair.source, pair.how) for pair in units]
    return {move.target: move.view for move in make_plan(swapped, shapes).moves}
