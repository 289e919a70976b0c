"""Equations: the values that weights of the candidate must have where a tensor mixes several of them, or takes rows.

A layer that is called with joined inputs on one side is a sum of several on the other, with products of inputs among
them, and a table is read at whole numbers: no single element of a weight comes out then. But such a tensor is linear in
the weights themselves. Each of its elements is one equation, the reference's tensor has the right-hand sides, and a
value that the equations do not tell (a row that nobody reads) stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

import numpy as np

from reprod_log.layers.transform import Shape
from reprod_log.pairing.anchors import SMALL, Cut, is_informative, seen, views
from reprod_log.pairing.graph import Graph
from reprod_log.pairing.identify import CALL, LINEAR, LinearPart
from reprod_log.pairing.parts import cut, cut_shape, cuts
from reprod_log.recording import Array

_WORK, _TENSORS, _SIDES = 6_000_000, 8, 400
"""What the equations of one event may cost, in elements; how many tensors give some; right-hand sides of each."""


@dataclass(frozen=True)
class Solution:
    """Values of weights under which a tensor of the candidate is one of the reference's; NaN: any."""

    partner: int
    values: Mapping[str, Array]


_Side = tuple[int, Cut | None, Cut | None, tuple[int, ...]]
"""A tensor of the reference, which part of the candidate's may be which part of it, and how."""


class Equations:
    """The candidate's tensors behind an event as linear in its unknown weights."""

    def __init__(self, ours: Graph, theirs: Graph, known: Callable[[int], Array | None], unknown: int) -> None:
        self.ours, self.theirs, self.unknown = ours, theirs, unknown
        self.shapes = {
            theirs.number[name]: theirs.program.arrays[theirs.number[name]].shape for name in theirs.bits(unknown)
        }
        self.part = LinearPart(theirs, lambda number: None if theirs.behind[number] & unknown else known(number))
        self.effort = 0

    def solutions(self, needed: int, partners: Sequence[int]) -> Iterator[Solution]:
        """Every one of the first tensors that depend on the weights `needed`, those of the fewest weights first."""
        random = np.random.default_rng(0)
        nothing = {number: np.zeros(shape) for number, shape in self.shapes.items()}
        one, other = ({n: random.normal(size=shape) for n, shape in self.shapes.items()} for _ in range(2))
        self.part.follow([nothing, one, other, {n: one[n] + other[n] for n in one}])
        behind, arrays = self.theirs.behind, self.theirs.program.arrays
        asked = [
            number
            for number in self.part.numbers
            if self.theirs.data[number] and arrays[number].size >= SMALL and behind[number] & needed == needed
        ]
        asked.sort(key=lambda number: (behind[number] & self.unknown).bit_count())
        for number in asked[:_TENSORS]:
            yield from self._solved(number, nothing, partners)

    def _solved(self, number: int, nothing: dict[int, Array], partners: Sequence[int]) -> Iterator[Solution]:
        names = list(self.theirs.bits(self.theirs.behind[number] & self.unknown))
        weights = [self.theirs.number[name] for name in names]
        sizes = [prod(self.shapes[weight]) for weight in weights]
        cost = sum(sizes) * (CALL * len(self.part.places) + self.theirs.program.arrays[number].size)
        if self.effort + cost > _WORK:
            return
        self.effort += cost
        part = self.part.leading_to(number)
        start = part.probe(nothing)[number]

        def moved(setting: dict[int, Array]) -> Array:
            return part.probe(nothing | setting)[number] - start

        if 2 * start.size <= sum(sizes) and self._is_free(moved, weights, start.size):
            return
        columns = [
            moved({weight: unit})
            for weight, size in zip(weights, sizes, strict=True)
            for unit in np.eye(size).reshape(-1, *self.shapes[weight])
        ]
        systems: dict[Cut | None, _System] = {}
        for partner, own, theirs, axes in self._sides(start.shape, partners):
            if own not in systems:
                rows = np.stack([cut(one, own).reshape(-1) for one in columns], -1)
                systems[own] = _System(rows, cut(start, own).reshape(-1))
            right = cut(self.ours.program.arrays[partner], theirs)
            places = seen(np.arange(right.size).reshape(cut_shape(start.shape, own)), axes, right.shape)
            turned = np.empty(right.size)
            turned[places.reshape(-1)] = right.reshape(-1)
            values = systems[own].solved(turned)
            if values is not None:
                yield Solution(partner, dict(zip(names, np.split(values, np.cumsum(sizes)[:-1]), strict=True)))

    def _is_free(self, moved: Callable[[dict[int, Array]], Array], weights: Sequence[int], size: int) -> bool:
        """Whether the weights can give a tensor of this size any values, so that no right-hand side tells anything.

        As many random settings as it has elements show that, and many weights on a few samples are many more.
        """
        random = np.random.default_rng(0)
        settings = ({weight: random.normal(size=self.shapes[weight]) for weight in weights} for _ in range(size))
        return _System(np.stack([moved(one).reshape(-1) for one in settings], -1), np.zeros(size)).sizes.size == size

    def _sides(self, shape: Shape, partners: Sequence[int]) -> Iterator[_Side]:
        arrays = self.ours.program.arrays
        every = (
            (partner, own, theirs, axes)
            for partner in partners
            if arrays[partner].dtype.kind == "f" and is_informative(arrays[partner])
            for own, theirs in ((None, None), *cuts(shape, arrays[partner].shape))
            for axes in views(cut_shape(shape, own), cut_shape(arrays[partner].shape, theirs))
        )
        return islice(every, _SIDES)


class _System:
    """The equations of one tensor, or of a part of it, for any right-hand side."""

    def __init__(self, rows: Array, start: Array) -> None:
        self.start = start
        left, sizes, directions = np.linalg.svd(rows, full_matrices=False)
        rank = int((sizes > 1e-9 * sizes.max(initial=0.0)).sum())
        self.left, self.sizes, self.directions = left[:, :rank], sizes[:rank], directions[:rank]
        self.told = np.square(self.directions).sum(0) > 1 - 1e-9

    def solved(self, right: Array) -> Array | None:
        """The values that fulfil all equations, NaN where they leave one open; None where no values do, or any."""
        right = right - self.start
        if not 0 < self.sizes.size < right.size:
            return None
        inside = self.left.T @ right
        if not float(np.abs(self.left @ inside - right).max()) <= LINEAR * float(np.abs(right).max(initial=0.0)):
            return None
        return np.where(self.told, self.directions.T @ (inside / self.sizes), np.nan)
