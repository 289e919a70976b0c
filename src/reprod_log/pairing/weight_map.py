"""The weight map: which tensors of the source make up each tensor of the target. Names and recipes only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reprod_log.layers.layouts import Piece, TensorView
from reprod_log.layers.transform import Shape
from reprod_log.pairing.units import Part, UnitPair
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


def tensor_views(units: Sequence[UnitPair], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorView]:
    """For each tensor of the reference the view of candidate tensors that equals it; `shapes` are the reference's."""
    # A plan fills its target from its source; here the reference is to be filled from the candidate.
    swapped = [UnitPair(pair.target, pair.source, pair.how) for pair in units]
    return {move.target: move.view for move in make_plan(swapped, shapes).moves}
