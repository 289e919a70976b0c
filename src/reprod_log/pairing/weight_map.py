"""The plan of a transfer: which tensors of the source make up each tensor of the target. Names and recipes only."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reprod_log.layers.layouts import Piece, TensorView
from reprod_log.layers.transform import Array, Shape
from reprod_log.pairing.unit import Part, Unit


@dataclass(frozen=True)
class UnitPair:
    """A unit of the source and the unit of the target that it goes to; `how` says what paired them."""

    source: Unit
    target: Unit
    how: str
    note: str = ""

    @property
    def settled(self) -> bool:
        """Whether a name decided: such a pair is not put in question by anything that follows."""
        return self.how in ("name", "rename")


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

    def carry(self, read: Callable[[str], Array]) -> dict[str, Array]:
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
