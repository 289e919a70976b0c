"""First states: zeros with which a program begins, made generic numbers so that every weight has influence at once.

A recurrent weight is multiplied with zeros in the first iteration, and a wrong one would do as well. For the search of
the weight map such zeros are further inputs of both programs; whether the map holds is asked of the programs as they
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from zlib import crc32

import numpy as np

from reprod_log.layers.transform import Shape
from reprod_log.pairing.graph import Graph


def with_generic_states(reference: Graph, candidate: Graph) -> tuple[Graph, Graph] | None:
    """Both programs begun with generic numbers; None where they have no zeros of one shape to begin with."""
    ours, theirs = _zeros(reference), _zeros(candidate)
    shapes = set(ours.values()) & set(theirs.values())
    if not shapes:
        return None
    here, there = _restarted(reference, ours, shapes), _restarted(candidate, theirs, shapes)
    return None if here is None or there is None else (here, there)


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
    for kernel in program.kernels:
        states = zeros.intersection(kernel.inputs)
        if states and any(graph.data[n] or graph.behind[n] for n in kernel.inputs if n not in states):
            found |= {n: tuple(size for size in program.arrays[n].shape if size != 1) for n in states}
            # What comes of zeros here (the part of a state that a gate keeps) is none to begin with.
            zeros.difference_update(kernel.outputs)
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
