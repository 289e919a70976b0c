"""Links that follow from paired units: which tensors of the source make up each tensor of the target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reprod_log.layers.layouts import Piece, TensorView
from reprod_log.layers.transform import Shape
from reprod_log.pairing.links import Link
from reprod_log.pairing.units import Part, UnitPair


def paired_links(pairs: Iterable[UnitPair], shapes: Mapping[str, Shape], sizes: Mapping[str, Shape]) -> list[Link]:
    """A link for every tensor of the target that the pairs fill wholly; `shapes` are the target's, `sizes` the
    source's."""
    filled: dict[str, dict[int, tuple[Part, Part, UnitPair]]] = {}
    for pair in pairs:
        for part in pair.target.parts:
            source = pair.source.part(part.canonical)
            if source is not None and source.shape == part.shape:
                filled.setdefault(part.tensor, {})[part.index] = (part, source, pair)
    links = []
    for tensor, by_index in filled.items():
        part, _, pair = next(iter(by_index.values()))
        if len(by_index) == part.transform.parts:
            view = _view(tensor, part, [by_index[index][1] for index in sorted(by_index)], pair)
            own = tuple(sizes[name] for name in view.candidate)
            links.append(Link(tensor, shapes[tensor], view.candidate, own, view, pair.how))
    return links


def _view(tensor: str, part: Part, sources: list[Part], pair: UnitPair) -> TensorView:
    stored = list(dict.fromkeys(source.tensor for source in sources))
    pieces = tuple(Piece(stored.index(source.tensor), source.index, source.transform) for source in sources)
    return TensorView(pair.target.title, tensor, tuple(stored), pieces, part.transform)


def tensor_views(
    units: Sequence[UnitPair], shapes: Mapping[str, Shape], sizes: Mapping[str, Shape]
) -> dict[str, TensorView]:
    """For each tensor of the reference the view of candidate tensors that equals it; `shapes` are the reference's."""
    # Pairs fill the target from the source; here the reference is to be filled from the candidate.
    swapped = [UnitPair(pair.target, pair.source, pair.how) for pair in units]
    links = paired_links(swapped, shapes, sizes)
    return {link.target: link.recipe for link in links if isinstance(link.recipe, TensorView)}
