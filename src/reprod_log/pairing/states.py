"""What a program begins with beside its batch, as further inputs of the search for the weight map.

First states are zeros, with which a recurrent weight is multiplied in the first iteration, so that a wrong one would do
as well: they are made generic numbers. Learned queries go through weights before they meet the batch: these weights can
be looked for one after the other only if the queries are an input. Whether the map holds is asked of the programs as
they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from zlib import crc32

import numpy as np

from reprod_log.layers.transform import Shape
from reprod_log.pairing.anchors import SMALL
from reprod_log.pairing.graph import Graph
from reprod_log.pairing.links import Link, single_recipes


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
