"""Parts: tensors that one program has in one piece and the other in several of equal size, along one axis.

Experts of a mixture, branches and directions are separate tensors on one side and stacked or joined on the other. A
part tells the search where to look on and that a weight fits; it proves no role, since any order of parts will do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby, islice
from math import gcd, prod

import numpy as np

from reprod_log.layers.transform import Shape
from reprod_log.pairing.anchors import SMALL, Anchor, Cut, Index, is_informative
from reprod_log.recording import Array

_MOST_PARTS = 8
_MOST_ELEMENTS = 20_000_000
"""In all the parts of one form that a tensor is looked for in."""


def cut(array: Array, part: Cut | None) -> Array:
    """The part of a tensor."""
    return array if part is None else np.split(array, part[2], part[0])[part[1]]


def cut_shape(shape: Shape, part: Cut | None) -> Shape:
    return shape if part is None else (*shape[: part[0]], shape[part[0]] // part[2], *shape[part[0] + 1 :])


def cuts(one: Shape, other: Shape) -> Iterator[tuple[Cut | None, Cut | None]]:
    """Under which parts of the larger of them, or of both, two tensors have one size and the same axes but for their
    order. Of both where neither is a multiple of the other: three stacked halves, and the two halves of each."""
    if prod(one) > prod(other):
        yield from ((part, None) for part in _parts_like(one, other))
    elif prod(one) < prod(other):
        yield from ((None, part) for part in _parts_like(other, one))
    shared = gcd(prod(one), prod(other))
    for part in _parts(one) if 0 < shared < min(prod(one), prod(other)) else ():
        if prod(one) == shared * part[2]:
            yield from ((part, partner) for partner in _parts_like(other, cut_shape(one, part)))


def _parts(shape: Shape) -> Iterator[Cut]:
    """The parts of a tensor that have enough numbers, along every axis."""
    for axis, length in enumerate(shape):
        for count in range(2, _MOST_PARTS + 1):
            if length % count == 0 and prod(shape) >= SMALL * count:
                yield from ((axis, index, count) for index in range(count))


def _parts_like(large: Shape, small: Shape) -> Iterator[Cut]:
    count, rest = divmod(prod(large), max(prod(small), 1))
    if rest or not 1 < count <= _MOST_PARTS:
        return
    for axis, length in enumerate(large):
        if length % count == 0 and _form(cut_shape(large, (axis, 0, count))) == _form(small):
            yield from ((axis, index, count) for index in range(count))


class PartIndex:
    """Finds a tensor in a program that has its parts, or that has it as a part of another."""

    def __init__(self, arrays: Mapping[int, Array], index: Index) -> None:
        self._arrays = {number: array for number, array in arrays.items() if array.dtype.kind == "f"}
        self._index = index
        self._forms = Counter(_form(array.shape) for array in self._arrays.values())
        self._parts: dict[Shape, tuple[list[tuple[int, Cut]], Index]] = {}
        """By form: the parts that have it, and where to find them."""
        self._ways: dict[Shape, list[tuple[Cut, ...]]] = {}

    def find(self, array: Array) -> tuple[Anchor, ...]:
        if array.dtype.kind != "f" or array.size < SMALL or not is_informative(array):
            return ()
        return self._joined(array) or self._part_of_one(array)

    def _joined(self, array: Array) -> tuple[Anchor, ...]:
        """One tensor, or one part of a tensor, for each of the parts."""
        for group in self._likely(array.shape):
            found: list[Anchor] = []
            for part in group:
                taken = {(one.number, one.partner_part) for one in found}
                piece = cut(array, part)
                some = self._index.find(piece) or self._part_of_one(piece)
                some = tuple(one for one in some if (one.number, one.partner_part) not in taken)
                if not some:
                    break
                found += [replace(one, part=part) for one in some]
            else:
                return tuple(found)
        return ()

    def _likely(self, shape: Shape) -> list[tuple[Cut, ...]]:
        """The ways to cut a tensor of this shape whose parts the program may have; each is all of its parts."""
        if shape not in self._ways:
            ways = (tuple(group) for _, group in groupby(_parts(shape), key=lambda part: (part[0], part[2])))
            forms = ((way, _form(cut_shape(shape, way[0]))) for way in ways)
            self._ways[shape] = [
                way for way, form in forms if self._forms[form] >= len(way) or self._is_shared(form, len(way))
            ]
        return self._ways[shape]

    def _is_shared(self, form: Shape, count: int) -> bool:
        """Whether another tensor has parts of this form, and is neither a multiple nor a part of so many of them."""
        parts = (part[2] for other in self._forms for part in islice(_parts_like(other, form), 1))
        return any(gcd(number, count) == 1 for number in parts)

    def _part_of_one(self, array: Array) -> tuple[Anchor, ...]:
        parts, index = self._parts_of(_form(array.shape))
        found = ((*parts[one.number], one.axes) for one in index.find(array))
        return tuple(Anchor(number, axes, partner_part=part) for number, part, axes in found)

    def _parts_of(self, form: Shape) -> tuple[list[tuple[int, Cut]], Index]:
        if form not in self._parts:
            every = ((number, part) for number, one in self._arrays.items() for part in _parts_like(one.shape, form))
            parts = list(islice(every, _MOST_ELEMENTS // prod(form)))
            index = Index({at: cut(self._arrays[number], part) for at, (number, part) in enumerate(parts)})
            self._parts[form] = parts, index
        return self._parts[form]


def _form(shape: Shape) -> Shape:
    """A shape without axes of one and without their order."""
    return tuple(sorted(n for n in shape if n > 1))
