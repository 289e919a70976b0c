"""Graph: what depends on what in a recorded program, and how a program is prepared for the search of the weight map.

Weights that are only used in parts are looked for part by part: scales of all blocks in one matrix, or the projections
of an attention in one weight of which each input meets another part, say nothing about each other. First states are
zeros, with which a recurrent weight is multiplied in the first iteration, so that a wrong one would do as well: they
are made generic numbers. Learned queries go through weights before they meet the batch: these weights can be looked for
one after the other only if the queries are an input. Whether the map holds is asked of the programs as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from zlib import crc32

import numpy as np

from reprod_log.frameworks.contract import Program
from reprod_log.layers.transform import Shape
from reprod_log.pairing.anchors import SMALL, view_of
from reprod_log.pairing.links import Computed, Link, WeightMap, link_of_places, single_recipes
from reprod_log.recording import Array


@dataclass
class Graph:
    """A program with the facts that follow from its kernels."""

    program: Program
    names: tuple[str, ...] = ()
    """The weights; a weight's place here is its bit in `behind`."""
    weights: dict[int, str] = field(default_factory=dict)
    number: dict[str, int] = field(default_factory=dict)
    data: list[bool] = field(default_factory=list)
    """Whether a tensor depends on the batch."""
    behind: list[int] = field(default_factory=list)
    """The weights that a tensor depends on, one bit each."""
    maker: dict[int, int] = field(default_factory=dict)
    """The kernel that made a tensor."""
    users: dict[int, list[int]] = field(default_factory=dict)
    last_use: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program) -> Graph:
        weights = program.weights
        graph = cls(program, tuple(dict.fromkeys(weights.values())))
        graph.weights = dict(weights)
        for number, name in weights.items():
            graph.number.setdefault(name, number)
        size = len(program.arrays)
        graph.data, graph.behind = [False] * size, [0] * size
        bits = {name: 1 << bit for bit, name in enumerate(graph.names)}
        for number, name in weights.items():
            # A part of a weight that is cut out again for every use is one weight under several numbers.
            graph.behind[number] = bits[name]
        given = frozenset(program.given.values())
        for number in given:
            graph.data[number] = True
        for place, kernel in enumerate(program.kernels):
            for number in kernel.inputs:
                graph._follow(number)
                graph.users.setdefault(number, []).append(place)
                graph.last_use[number] = place
            data = any(graph.data[number] for number in kernel.inputs)
            behind = 0
            for number in kernel.inputs:
                behind |= graph.behind[number]
            for number in kernel.outputs:
                if number not in given and number not in weights:
                    graph.data[number], graph.behind[number] = data, behind
                    graph.maker[number] = place
        end = len(program.kernels)
        for number in program.results.values():
            graph._follow(number)
            graph.last_use[number] = end
        return graph

    def _follow(self, number: int) -> None:
        """A tensor that was written through another one depends on what it was before."""
        before = self.program.written.get(number)
        if before is not None and number not in self.maker and not self.data[number]:
            self.data[number], self.behind[number] = self.data[before], self.behind[before]

    def kept_operands(self) -> frozenset[int]:
        """Further results of kernels that are what these were given, kept for the gradient: no evidence of anything."""
        arrays = self.program.arrays
        return frozenset(
            number
            for kernel in self.program.kernels
            for number in kernel.outputs[1:]
            if number not in self.last_use
            and any(
                arrays[one].size == arrays[number].size and view_of(arrays[one], arrays[number]) is not None
                for one in kernel.inputs
            )
        )

    def bits(self, mask: int) -> Iterator[str]:
        while mask:
            low = mask & -mask
            yield self.names[low.bit_length() - 1]
            mask ^= low

    def weights_into(self, place: int) -> int:
        """The weights that reach a kernel without going through the batch: those that it uses itself."""
        mask = 0
        for number in self.program.kernels[place].inputs:
            if not self.data[number]:
                mask |= self.behind[number]
        return mask

    def uses_data(self, place: int) -> bool:
        return any(self.data[number] for number in self.program.kernels[place].inputs)

    def data_inputs(self, place: int) -> list[int]:
        return [number for number in self.program.kernels[place].inputs if self.data[number]]


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


def with_generic_states(reference: Graph, candidate: Graph) -> tuple[Graph, Graph] | None:
    """Both programs begun with generic numbers; None where they have no zeros of one shape to begin with."""
    ours, theirs = _zeros(reference), _zeros(candidate)
    shapes = set(ours.values()) & set(theirs.values())
    if not shapes:
        return None
    here, there = _restarted(reference, ours, shapes), _restarted(candidate, theirs, shapes)
    return None if here is None or there is None else (here, there)


def with_learned_inputs(reference: Graph, candidate: Graph) -> tuple[Graph, Graph, dict[str, Link]]:
    """Both programs with their learned queries as inputs, and the links that these have."""
    ours, theirs = _learned(reference), _learned(candidate)
    links = {}
    for shape, names in theirs.items():
        for target, source in zip(names, ours.get(shape, ()), strict=False):
            shapes = [
                side.program.arrays[side.number[name]].shape
                for side, name in ((candidate, target), (reference, source))
            ]
            recipe = next(iter(single_recipes(shapes[1], shapes[0])))
            links[target] = Link(target, shapes[0], (source,), (shapes[1],), recipe, "values")
    if not links:
        return reference, candidate, {}
    here = _with_inputs(reference, [name for link in links.values() for name in link.sources])
    return here, _with_inputs(candidate, list(links)), links


def _learned(graph: Graph) -> dict[Shape, list[str]]:
    """The weights that another layer is called with, before the batch comes, by shape but for axes of one."""
    found: dict[Shape, dict[str, None]] = {}
    for place, kernel in enumerate(graph.program.kernels):
        if graph.uses_data(place) or not kernel.inputs:
            continue
        given = graph.behind[kernel.inputs[0]]
        if given.bit_count() == 1 and graph.weights_into(place) != given:
            (name,) = graph.bits(given)
            shape = graph.program.arrays[graph.number[name]].shape
            if prod(shape) >= SMALL:
                found.setdefault(tuple(size for size in shape if size != 1), {})[name] = None
    return {shape: list(names) for shape, names in found.items()}


def _with_inputs(graph: Graph, names: list[str]) -> Graph:
    inputs = {f"weight {name}": graph.number[name] for name in names}
    return Graph.of(replace(graph.program, given=graph.program.given | inputs))


def _zeros(graph: Graph) -> dict[int, Shape]:
    """The tensors of nothing but zeros that meet the batch or a weight, with their shapes but for axes of one."""
    program = graph.program
    known = {*program.weights, *program.given.values()}
    zeros = {
        number
        for number, array in enumerate(program.arrays)
        if number not in known and array.dtype.kind == "f" and array.size > 1 and not array.any()
    }
    found: dict[int, Shape] = {}
    made: set[int] = set()
    for kernel in program.kernels:
        states = zeros.intersection(kernel.inputs)
        if states and any(graph.data[n] or graph.behind[n] for n in kernel.inputs if n not in states):
            found |= {n: tuple(size for size in program.arrays[n].shape if size != 1) for n in states}
            made.update(kernel.outputs)
        elif not made.isdisjoint(kernel.inputs):
            made.update(kernel.outputs)
        # What comes of a state (the part that a gate keeps, a layer whose bias is zero) is none to begin with.
        zeros.difference_update(made.intersection(kernel.outputs))
    return found


def _restarted(graph: Graph, zeros: Mapping[int, Shape], shapes: set[Shape]) -> Graph | None:
    program = graph.program
    arrays = list(program.arrays)
    given = dict(program.given)
    changed: set[int] = set()
    for number, shape in zeros.items():
        if shape in shapes:
            # One side may have one tensor where the other has two, so what counts is the shape.
            numbers = np.random.default_rng(crc32(repr(shape).encode())).normal(size=shape)
            arrays[number] = numbers.reshape(arrays[number].shape)
            given[f"state {number}"] = number
            changed.add(number)
    states = frozenset(changed)
    try:
        for place, kernel in enumerate(program.kernels):
            if changed.isdisjoint(kernel.inputs):
                continue
            results = program.again(
                place, {number: program.tensor(np.array(arrays[number])) for number in kernel.inputs}
            )
            for number, tensor in zip(kernel.outputs, results, strict=False):
                if number not in states:
                    arrays[number] = np.array(program.array(tensor))
                    changed.add(number)
    except Exception:  # a kernel may refuse other numbers than it had
        return None
    return Graph.of(replace(program, arrays=arrays, given=given))
