"""ULP distances in numpy: how many representable values lie between the two, counting one of the ends.

The bits of IEEE numbers, read as sign and magnitude, are in the order of their values, so the distance is a
difference of integers. Both zeros are the same number and have distance 0.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from reprod_log.measure.dtypes import Array, DType

_INTEGERS: dict[int, DType] = {2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def ulp_distances(reference: Array, candidate: Array, *, component: DType, scratch: Array) -> tuple[float, float]:
    """The largest and the sum of the ULP distances of two contiguous blocks of finite values of one dtype.

    `scratch` is overwritten and must have room for one of the blocks.
    """
    if component.itemsize == 1:
        ranks = _ranks(component)
        left, right = ranks[reference.view(np.uint8)], ranks[candidate.view(np.uint8)]
        distances = np.abs(left - right)
        return float(distances.max()), float(distances.sum(dtype=np.int64))
    signed = _INTEGERS[component.itemsize]
    unsigned: DType = np.dtype(f"u{component.itemsize}")
    left, right = reference.view(signed), candidate.view(signed)
    # Right for equal signs. Opposite signs wrap around to something of at least one exponent step, because a
    # finite value stays that far below the integers' end; so a small maximum proves that there are none.
    room = scratch.view(signed)[: left.size]
    np.subtract(left, right, out=room)
    distances = np.abs(room, out=room).view(unsigned)
    largest = int(distances.max())
    if largest >= _exponent_step(component):
        _mend_opposite_signs(left, right, distances)
        largest = int(distances.max())
    most = largest * distances.size
    # Sums that fit the integers' own width are several times faster than widened ones.
    within = unsigned if most < 1 << (8 * component.itemsize) else np.uint64 if most < 1 << 64 else np.float64
    return float(largest), float(np.add.reduce(distances, dtype=within))


def ulp_steps(reference: Array, candidate: Array, *, component: DType) -> Array:
    """The ULP distance of each element of two contiguous arrays of one dtype; of finite values only."""
    signed = _INTEGERS[component.itemsize]
    left, right = reference.view(signed), candidate.view(signed)
    distances = np.abs(np.subtract(left, right)).view(np.dtype(f"u{component.itemsize}"))
    _mend_opposite_signs(left, right, distances)
    return distances


@lru_cache(maxsize=8)
def _exponent_step(component: DType) -> int:
    if component.name == "bfloat16":
        return 1 << 7
    return 1 << int(np.finfo(component).nmant)


def _mend_opposite_signs(left: Array, right: Array, distances: Array) -> None:
    """Where the signs differ, the distance goes through zero: the sum of both magnitudes."""
    at = np.flatnonzero((left ^ right) < 0)
    magnitude = np.array(np.iinfo(left.dtype).max, left.dtype)
    distances[at] = (left[at] & magnitude).view(distances.dtype) + (right[at] & magnitude).view(distances.dtype)


@lru_cache(maxsize=32)
def _ranks(dtype: DType) -> Array:
    """For each of the 256 bit patterns, the rank of its value among all finite values of the dtype."""
    with np.errstate(all="ignore"):
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    finite = np.isfinite(values)
    ranks = np.zeros(256, np.int32)
    ranks[finite] = np.unique(values[finite], return_inverse=True)[1]
    ranks.setflags(write=False)
    return ranks
