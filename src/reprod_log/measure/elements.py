"""Single elements of a pair, for pictures: evenly spaced samples of both sides, and the few that differ most."""

from __future__ import annotations

import heapq
import math
from functools import lru_cache
from typing import Any

import numpy as np

from reprod_log.measure import kernel
from reprod_log.measure.blocks import BLOCK, paired_blocks, reused_buffers
from reprod_log.measure.dtypes import Arithmetic, Array, DType, DtypePair, dtype_pair
from reprod_log.measure.measurement import Worst
from reprod_log.measure.numpy_pass import Widener

Samples = tuple[tuple[float, float], ...]


def samples_of(reference: Array, candidate: Array, *, most: int) -> Samples:
    """At most `most` pairs (reference, candidate) at evenly spaced places; the first and the last element are in.

    The same arrays always give the same samples. Complex numbers and text give none: they have no place on one axis.
    """
    if most < 1 or reference.size == 0 or not (is_real(reference.dtype) and is_real(candidate.dtype)):
        return ()
    places = _places(reference.size, most)
    left, right = (_taken(array, places).astype(np.float64).tolist() for array in (reference, candidate))
    return tuple(zip(left, right, strict=True))


def thinned(samples: Samples, most: int) -> Samples:
    """At most `most` of the samples, evenly spaced; the first and the last stay."""
    return samples if len(samples) <= most else tuple(samples[place] for place in _places(len(samples), most).tolist())


def worst_elements(reference: Array, candidate: Array, *, most: int) -> tuple[Worst, ...]:
    """The `most` elements with the largest difference, largest first; equal elements are left out.

    A NaN or infinity without its equal on the other side comes before every number. Ties go to the earlier place.
    """
    pair = dtype_pair(reference.dtype, candidate.dtype)
    if pair.arithmetic is Arithmetic.EQUALITY or most < 1:
        return ()
    places = kernel.worst_places(reference, candidate, pair=pair, most=most)
    if places is None:
        places = _worst_places(reference, candidate, pair=pair, most=most)
    return tuple(element_at(place, reference, candidate) for place in places)


def _worst_places(reference: Array, candidate: Array, *, pair: DtypePair, most: int) -> list[int]:
    # A heap of (size, -place): its first item is the least of those kept, so most blocks are passed over by one max().
    kept: list[tuple[float, int]] = []
    with reused_buffers() as memory, np.errstate(all="ignore"):
        widener = Widener(pair, size=min(BLOCK, max(reference.size, 1)), buffers=memory)
        for offset, left, right in paired_blocks(reference, candidate, size=BLOCK):
            sizes = widener.widened(left, right).difference
            largest = float(sizes.max())
            if math.isnan(largest):
                # NaN differs from everything; equal infinities do not differ, although their difference is NaN.
                odd = np.isnan(sizes)
                sizes[odd] = np.where(left[odd] == right[odd], 0.0, math.inf)
                largest = float(sizes.max())
            least = kept[0][0] if len(kept) == most else 0.0
            if not largest > least:
                continue
            found = np.flatnonzero(sizes > least)
            if found.size > most:
                # Sorting a whole block takes longer than measuring it; a partition leaves little to sort.
                bound = np.partition(sizes[found], found.size - most)[found.size - most]
                found = found[sizes[found] >= bound]
                found = np.sort(found[np.argsort(-sizes[found], kind="stable")[:most]])
            for place in found.tolist():
                item = (float(sizes[place]), -(offset + place))
                if len(kept) < most:
                    heapq.heappush(kept, item)
                else:
                    heapq.heappushpop(kept, item)
    return [-place for _, place in sorted(kept, reverse=True)]


def plain_number(value: Any) -> float | complex | int | bool:
    """The same number as a plain Python one (the nearest float64 of a longdouble)."""
    dtype = value.dtype
    if dtype.kind in "biu":
        plain: bool | int = value.item()
        return plain
    if dtype.kind == "c" or "complex" in dtype.name:
        return complex(value)
    return int(value) if "int" in dtype.name else float(value)


def worst_at(at: int | None, reference: Array, candidate: Array) -> Worst | None:
    """The element at this place of the flattened arrays; None for none."""
    return None if at is None else element_at(at, reference, candidate)


def element_at(at: int, reference: Array, candidate: Array) -> Worst:
    """The element at this place of the flattened arrays."""
    index: list[int] = []
    rest = at
    for length in reversed(reference.shape):
        rest, place = divmod(rest, length)
        index.append(place)
    return Worst(tuple(reversed(index)), _plain(reference, at), _plain(candidate, at))


def _plain(array: Array, at: int) -> float | complex | int | bool:
    """An element as a plain Python number (the nearest float64 of a longdouble)."""
    value: Any = array.item(at)
    return value if type(value) in (float, int, bool, complex) else plain_number(array.flat[at])


@lru_cache(maxsize=64)
def is_real(dtype: DType) -> bool:
    """Whether its values have a place on one axis."""
    return dtype.kind in "biuf" or (dtype.type.__module__.split(".")[0] == "ml_dtypes" and "complex" not in dtype.name)


@lru_cache(maxsize=256)
def _places(size: int, most: int) -> Array:
    """Which of `size` elements stand for all of them."""
    places = np.arange(size) if size <= most else np.linspace(0, size - 1, most).round().astype(np.intp)
    places.setflags(write=False)
    return places


def _taken(array: Array, places: Array) -> Array:
    if array.flags.c_contiguous:
        return array.reshape(-1)[places]
    # reshape(-1) would copy the whole of a transposed array for a few elements.
    return array[np.unravel_index(places, array.shape)]
