"""Many small pairs at once. One pass costs dozens of calls however little there is to do; shared by hundreds of small
tensors that is nothing. The kernel takes them in one call, numpy lays them end to end and reduces them in segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reprod_log.measure import kernel
from reprod_log.measure.dtypes import Arithmetic, Array, DtypePair, dtype_pair
from reprod_log.measure.elements import worst_at
from reprod_log.measure.fused import measure_arrays, notes_of
from reprod_log.measure.measurement import Measurement
from reprod_log.measure.segments import Segments

SMALL = 1 << 14
"""Pairs of up to this many elements gain from being measured together."""
# What numpy lays end to end stays in the cache.
_TOGETHER = 1 << 16

Small = tuple[Array, Array, DtypePair, float | None]


def is_small(reference: Array, candidate: Array) -> bool:
    """Whether the pair may go to `measure_small`: two small arrays of one plain dtype, as they lie in memory."""
    return (
        0 < reference.size <= SMALL
        and reference.dtype == candidate.dtype
        and reference.shape == candidate.shape
        and reference.flags.c_contiguous
        and candidate.flags.c_contiguous
        and reference.dtype.isnative
    )


def measure_small(pairs: Sequence[tuple[Array, Array, float | None]]) -> list[Measurement]:
    """The measurements of (reference, candidate, limit), all of which are small, in their order."""
    described = [(left, right, dtype_pair(left.dtype, right.dtype), limit) for left, right, limit in pairs]
    found = _by_kernel(described) if kernel.load().measure_many is not None else _by_numpy(described)
    return [
        measure_arrays(left, right, limit=limit) if one is None else one
        for one, (left, right, limit) in zip(found, pairs, strict=True)
    ]


def _by_kernel(pairs: Sequence[Small]) -> list[Measurement | None]:
    """What the kernel can say; None for a pair that needs a closer look."""
    found: list[Measurement | None] = [None] * len(pairs)
    places = [place for place, (left, right, pair, _) in enumerate(pairs) if kernel.knows(pair, left, right)]
    runs = kernel.run_many([pairs[place] for place in places]) if places else []
    for place, run in zip(places, runs or (), strict=False):
        left, right, pair, limit = pairs[place]
        worst = worst_at(run.worst_at, left, right)
        found[place] = run.measurement(pair=pair, worst=worst, limit=limit, notes=notes_of(pair, left.size))
    return found


def _by_numpy(pairs: Sequence[Small]) -> list[Measurement | None]:
    """What segments can say; None for a pair that needs a closer look."""
    found: list[Measurement | None] = [None] * len(pairs)
    groups: dict[Any, list[int]] = {}
    for place, (left, _, pair, _) in enumerate(pairs):
        # isbuiltin 1: numpy's own; the odd kinds of ml_dtypes have their own ways.
        if pair.arithmetic is Arithmetic.FLOAT64 and (left.dtype.isbuiltin == 1 or pair.reference == "bfloat16"):
            groups.setdefault(left.dtype, []).append(place)
    for places in groups.values():
        for together in _cut(places, [pairs[place][0].size for place in places]):
            segments = Segments([pairs[place] for place in together])
            for place, measurement in zip(together, segments.measurements(), strict=True):
                found[place] = measurement
    return found


def _cut(places: list[int], sizes: list[int]) -> list[list[int]]:
    """The places in runs of at most `_TOGETHER` elements."""
    runs: list[list[int]] = []
    room = 0
    for place, size in zip(places, sizes, strict=True):
        if size > room:
            runs.append([])
            room = _TOGETHER
        runs[-1].append(place)
        room -= size
    return runs
