"""Anchors: tensors of two programs that are the same numbers in float64, as they are, reshaped or with permuted axes.

A correct port computes the same tensors. Fingerprints find who may be equal, elements confirm it. Freer views (the same
numbers in any order) would hide mistakes, so there are none.

Experts of a mixture, branches and directions are separate tensors on one side and stacked or joined on the other. A
part tells the search where to look on and that a weight fits; it proves no role, since any order of parts will do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, islice, permutations
from math import gcd, prod

import numpy as np

from reprod_log.layers.transform import Shape
from reprod_log.recording import Array

LOOSE = 1e-6
"""Equal up to constants that a kernel keeps in float32: above a bicubic resize (3.4e-7), below an epsilon that stands
outside of the root (5e-6)."""
SMALL = 8
"""Fewer numbers than this may agree by accident."""
_FILL = 1e5
"""Times the median: what is larger is no value but the fill of a mask, and must not set the scale."""
_PROBED = 64
_MOST_AXES = 5
_CLOSE, _MOST_TURNED = 0.7, 4_000_000
"""How close, beside the tensor itself and beside all other views; and up to how many elements views are compared."""


@dataclass(frozen=True)
class Print:
    """A few numbers that do not depend on the order of a tensor's elements."""

    size: int
    nonfinite: int
    total: float
    absolute: float
    squares: float

    def near(self, other: Print, limit: float = LOOSE) -> bool:
        reach = 4 * limit * max(self.absolute, other.absolute)
        return abs(self.total - other.total) <= reach and abs(self.absolute - other.absolute) <= reach


def fingerprint(array: Array) -> Print:
    flat = array.reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(np.float64)
    elif flat.dtype != np.float64:
        flat = flat.astype(np.float64)
    finite = np.isfinite(flat)
    count = int(flat.size - np.count_nonzero(finite))
    if count:
        flat = flat[finite]
    # Fills of masks (the smallest number that there is) overflow when squared, on both sides alike.
    with np.errstate(over="ignore"):
        squares = float(np.dot(flat, flat)) if flat.size else 0.0
        return Print(array.size, count, float(flat.sum()), float(np.abs(flat).sum()), squares)


def is_informative(array: Array) -> bool:
    """Whether its numbers could not be another tensor's by accident: constants, zeros and flags say nothing."""
    if array.dtype.kind not in "fciu" or not array.size:
        return False
    flat = array.reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(np.float64)
    first = flat[0]
    other = flat[flat != first]
    if array.dtype.kind == "f" and array.size <= SMALL:
        return not bool(np.isin(flat, (0.0, 1.0, -1.0)).all())
    return bool(other.size) and bool((other != other[0]).any())


def same_numbers(one: Array, other: Array, limit: float = LOOSE) -> bool:
    """Whether two arrays of one shape agree element by element; integers exactly."""
    if one.dtype.kind in "iub" and other.dtype.kind in "iub":
        return bool(np.array_equal(one, other))
    if one.dtype.kind == "c" or other.dtype.kind == "c":
        scale = float(np.abs(one).max(initial=0.0))
        return float(np.abs(one - other).max(initial=0.0)) <= limit * scale
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - other)
    size = np.abs(one)
    bad = ~np.isfinite(apart)
    if bad.any():
        if not bool(np.array_equal(one[bad], other[bad], equal_nan=True)):
            return False
        apart, size = apart[~bad], size[~bad]
    if not size.size:
        return True
    scale = float(size.max())
    if scale > 1e4:
        middle = float(np.median(size))
        large = size > max(_FILL * middle, 1e4)
        if large.any() and not large.all():
            if (apart[large] > limit * size[large]).any():
                return False
            apart, size = apart[~large], size[~large]
            scale = float(size.max())
    return bool(apart.max() <= limit * scale)


def view_of(one: Array, other: Array, limit: float = LOOSE) -> tuple[int, ...] | None:
    """How the second becomes the first: () as it is, (-1,) reshaped, or its axes permuted (without those of one
    element), and reshaped where one side has two or more of the other's axes as one; None: not the same."""
    for axes in views(other.shape, one.shape):
        turned = seen(other, axes, one.shape)
        if (axes != (-1,) or _starts_alike(one, turned, limit)) and same_numbers(one, turned, limit):
            return axes
    merged = _merged_axes(one, other, limit) if one.size == other.size else None
    return merged if merged and same_numbers(one, seen(other, merged, one.shape), limit) else None


def nearest_axes(one: Array, other: Array) -> tuple[int, ...]:
    """The view under which the second, which is not the first, is by far the closest; (): as it is, or none is."""
    if one.dtype.kind != "f" or other.dtype.kind != "f" or not 1 < one.size <= _MOST_TURNED:
        return ()
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return ()
    ways = [(float(np.linalg.norm(one - seen(other, axes, one.shape))), axes) for axes in views(other.shape, one.shape)]
    (apart, axes), *others = sorted(ways) or [(np.inf, ())]
    clear = apart < _CLOSE * float(np.linalg.norm(one)) and all(apart < _CLOSE * far for far, _ in others)
    return axes if clear else ()


def views(source: tuple[int, ...], target: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The views (as in `view_of`) under which a tensor of one shape has the other."""
    if prod(source) != prod(target):
        return
    narrow, wanted = ([n for n in shape if n > 1] for shape in (source, target))
    turned = [
        axes
        for axes in (permutations(range(len(narrow))) if len(narrow) == len(wanted) <= _MOST_AXES else ())
        if axes != tuple(range(len(narrow))) and [narrow[axis] for axis in axes] == wanted
    ]
    if narrow == wanted:
        yield () if source == target else (-1,)
        yield from turned
    else:
        # Equal rows fit in every order; the same axes in another order are turned rather than reshaped.
        yield from turned
        yield (-1,)


def seen(array: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """A tensor in the form of the one that it is under this view."""
    if not axes or axes == (-1,):
        return array.reshape(shape)
    return array.reshape([n for n in array.shape if n > 1]).transpose(axes).reshape(shape)


def _merged_axes(one: Array, other: Array, limit: float) -> tuple[int, ...] | None:
    """The order of the second's axes in which they are the first's, where one side has several of the other's as one:
    rows of patches, and pictures of as many rows and columns; None: there is none."""
    wanted, given = (array.reshape([n for n in array.shape if n > 1]) for array in (one, other))
    if one.dtype.kind != "f" or min(wanted.ndim, given.ndim) < 2 or not one.size <= _MOST_TURNED:
        return None
    if given.ndim > wanted.ndim:
        return _order(given, wanted, limit)
    order = _order(wanted, given, limit) if given.ndim < wanted.ndim else None
    ends = np.cumprod(given.shape)[:-1] if order else ()
    sizes = np.cumprod([wanted.shape[axis] for axis in order or ()]).tolist()
    if order is None or not set(ends) <= set(sizes):
        return None
    groups = np.split(order, [sizes.index(end) + 1 for end in ends])
    if not all((np.diff(group) == 1).all() for group in groups):
        return None
    return tuple(np.argsort([group[0] for group in groups]).tolist())


def _order(fine: Array, coarse: Array, limit: float) -> tuple[int, ...] | None:
    """The order of a tensor's axes in which its numbers lie as in another one, told by where its neighbours lie there.

    A step along an axis is the same distance in the other tensor, wherever it is taken.
    """
    flat = coarse.reshape(-1)
    ranks = np.argsort(flat)
    ranked = flat[ranks]
    near = 4 * limit * float(np.abs(flat).max(initial=0.0))
    alone = np.diff(ranked, prepend=-np.inf, append=np.inf) > near
    alone = alone[:-1] & alone[1:]

    def places(values: Array) -> Array:
        """Where these numbers lie in the other tensor; -1 where they may lie in several places."""
        after = np.clip(np.searchsorted(ranked, values), 1, ranked.size - 1)
        at = np.where(values - ranked[after - 1] < ranked[after] - values, after - 1, after)
        return np.where(alone[at], ranks[at], -1)

    starts = np.linspace(0, fine.size - 1, min(fine.size, _PROBED), dtype=int)
    steps = []
    for axis, size in enumerate(fine.shape):
        index = list(np.unravel_index(starts, fine.shape))
        index[axis] = np.minimum(index[axis], size - 2)
        here = places(fine[tuple(index)])
        index[axis] = index[axis] + 1
        there = places(fine[tuple(index)])
        known = (there - here)[(here >= 0) & (there >= 0)]
        if not known.size:
            return None
        steps.append(int(known[0]))
    return tuple(sorted(range(fine.ndim), key=lambda axis: -steps[axis]))


def _starts_alike(one: Array, other: Array, limit: float) -> bool:
    a, b = (array.reshape(-1)[:_PROBED] for array in (one, other))
    # A few numbers may be small beside the largest, which sets the scale.
    return limit > LOOSE or same_numbers(a, b) or bool((np.abs(a) > 1e4).any())


Cut = tuple[int, int, int]
"""One of several equal parts of a tensor: axis, index, number of parts."""


@dataclass(frozen=True)
class Anchor:
    """A tensor of the reference that is a tensor of the candidate, and how."""

    number: int
    axes: tuple[int, ...]
    """As in `view_of`."""
    part: Cut | None = None
    """Which part of the candidate's tensor it is, where it is not all of it."""
    partner_part: Cut | None = None
    """Which part of the reference's."""


class Index:
    """The tensors of one program, to be found by value."""

    def __init__(self, arrays: Mapping[int, Array], limit: float = LOOSE) -> None:
        self._arrays, self._limit = arrays, limit
        self._groups: dict[tuple[int, int, bool], list[tuple[float, int]]] = {}
        self._prints: dict[int, Print] = {}
        for number, array in arrays.items():
            if is_informative(array):
                self._prints[number] = made = fingerprint(array)
                self._groups.setdefault(_group(array, made), []).append((made.squares, number))
        for group in self._groups.values():
            group.sort()

    def find(self, array: Array, most: int = 24) -> tuple[Anchor, ...]:
        """The tensors that are this one, in the order of the run, those without a change of axes first."""
        if not is_informative(array):
            return ()
        made = fingerprint(array)
        group = self._groups.get(_group(array, made), [])
        reach = 2 * self._limit * made.squares
        low = bisect_left(group, (made.squares - reach, -1))
        high = bisect_right(group, (made.squares + reach, 1 << 60))
        found = []
        for _, number in group[low:high]:
            if self._prints[number].near(made, self._limit):
                axes = view_of(self._arrays[number], array, self._limit)
                if axes is not None:
                    found.append(Anchor(number, axes))
                    if len(found) >= most:
                        break
        found.sort(key=lambda one: (len(one.axes), one.number))
        return tuple(found)


def _group(array: Array, made: Print) -> tuple[int, int, bool]:
    return made.size, made.nonfinite, array.dtype.kind in "iub"


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
