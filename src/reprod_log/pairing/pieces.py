"""Pieces: weights of the candidate that its program only uses in parts, each of which is looked for by itself.

Scales of all blocks in one matrix, or the projections of an attention in one weight of which each input meets another
part: the parts are used far from each other, and what one of them comes from says nothing about the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from reprod_log.layers.transform import Shape
from reprod_log.pairing.graph import Graph
from reprod_log.pairing.links import Computed, Link, WeightMap, link_of_places
from reprod_log.recording import Array


@dataclass(frozen=True)
class Pieces:
    """The pieces of weights: the flat places of each in its weight."""

    shapes: Mapping[str, Shape]
    """The weights that are in pieces."""
    places: Mapping[str, tuple[str, Array]]
    """By the name of a piece: its weight, and the places."""

    def whole(self, found: WeightMap) -> WeightMap:
        """The map with its weights in one piece again."""
        if not self.shapes:
            return found
        links = [link for link in found.links if link.target not in self.places]
        missing = set()
        for name, shape in self.shapes.items():
            parts = [(found.by_target.get(piece), at) for piece, (of, at) in self.places.items() if of == name]
            known = [(link, at) for link, at in parts if link is not None]
            if len(known) < len(parts):
                missing.add(name)
            else:
                links.append(_joined(name, shape, known))
        used = {name for link in links for name in link.sources}
        lost = {name for link in found.links for name in link.sources} - used
        return replace(
            found,
            links=tuple(links),
            unproven=self._names(found.unproven),
            left_in_reference=(*found.left_in_reference, *sorted(lost)),
            left_in_candidate=tuple(dict.fromkeys((*self._names(found.left_in_candidate), *sorted(missing)))),
        )

    def _names(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.places[name][0] if name in self.places else name for name in names))


def in_pieces(graph: Graph, own: frozenset[str]) -> tuple[Graph, Pieces]:
    """The program with the pieces of its weights as weights, but for those whose values are its own."""
    shapes: dict[str, Shape] = {}
    places: dict[str, tuple[str, Array]] = {}
    weights: dict[int, str] = {}
    for number, name in graph.program.weights.items():
        found = {} if name in own else _pieces(graph, number)
        for piece, at in found.items():
            same = (one for one, (of, known) in places.items() if of == name and np.array_equal(known, at.reshape(-1)))
            weights[piece] = next(same, f"{name}[{sum(of == name for of, _ in places.values())}]")
            places[weights[piece]] = name, at.reshape(-1)
        if found:
            shapes[name] = graph.program.arrays[number].shape
        else:
            weights[number] = name
    return (Graph.of(replace(graph.program, weights=weights)) if shapes else graph), Pieces(shapes, places)


def _pieces(graph: Graph, weight: int) -> dict[int, Array]:
    """The tensors that are parts of a weight, if it is used in no other way and they are all of it; else none.

    The same part may be cut out several times.
    """
    program = graph.program
    size = program.arrays[weight].size
    found: dict[int, Array] = {}
    queue = {weight: np.arange(size).reshape(program.arrays[weight].shape)}
    while queue:
        number, at = queue.popitem()
        for place in graph.users.get(number, ()):
            if set(program.kernels[place].inputs) != {number}:
                return {}
            try:
                made = program.again(place, {number: program.tensor(at.astype(program.arrays[number].dtype))})
            except Exception:  # a kernel may refuse other numbers than it had
                return {}
            for output, tensor in zip(program.kernels[place].outputs, made, strict=False):
                part = np.array(program.array(tensor))
                taken = np.rint(part).astype(int)
                if not np.array_equal(taken, part) or not np.isin(taken, at).all():
                    return {}
                (queue if taken.size == size else found)[output] = taken
    parts = {at.reshape(-1).tobytes(): at for at in found.values()}
    every = np.concatenate([at.reshape(-1) for at in parts.values()]) if parts else np.zeros(0, int)
    if not np.array_equal(np.sort(every), np.arange(size)):
        return {}
    return dict(sorted(found.items(), key=lambda one: int(one[1].min())))


def _joined(name: str, shape: Shape, parts: Sequence[tuple[Link, Array]]) -> Link:
    """The weight made of its pieces."""
    shapes = {one: size for link, _ in parts for one, size in zip(link.sources, link.source_shapes, strict=True)}
    starts = dict(zip(shapes, np.cumsum([0, *map(prod, shapes.values())]), strict=False))
    order = np.full(prod(shape), -1)
    for link, at in parts:
        for one, places in zip(link.sources, link.places, strict=True):
            flat = places.reshape(-1)
            order[at[flat >= 0]] = starts[one] + flat[flat >= 0]
    if all(sum(int((places >= 0).sum()) for places in link.places) == at.size for link, at in parts):
        known = link_of_places(name, shape, list(shapes), list(shapes.values()), order)
        if known is not None:
            return known
    made = _made(parts, list(shapes), prod(shape))
    return Link(name, shape, tuple(shapes), tuple(shapes.values()), Computed(made), "values")


def _made(parts: Sequence[tuple[Link, Array]], names: list[str], size: int) -> Callable[[Sequence[Array]], Array]:
    def made(arrays: Sequence[Array]) -> Array:
        given = dict(zip(names, arrays, strict=True))
        whole = np.zeros(size)
        for link, at in parts:
            whole[at] = link.apply([given[one] for one in link.sources]).reshape(-1)
        return whole

    return made
