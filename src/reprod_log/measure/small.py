"""Many small pairs at once. One pass costs dozens of calls however little there is to do; shared by hundreds of small
tensors that is nothing. The kernel takes them in one call, numpy lays them end to end and reduces them in segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reprod_log.measure import kernel
from reprod_log.measure.columns import EndToEnd
from reprod_log.measure.dtypes import Arithmetic, Array, DType, dtype_pair
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement
from reprod_log.measure.segments import Segments

SMALL = 1 << 14
"""Pairs of up to this many elements gain from being measured together."""
# What numpy lays end to end stays in the cache.
_TOGETHER = 1 << 14

Small = tuple[Array, Array, float | None]


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


def measure_small(pairs: Sequence[Small]) -> list[Measurement]:
    """The measurements of (reference, candidate, limit), all of which are small, in their order."""
    found: list[Measurement | None] = [None] * len(pairs)
    by_dtype: dict[DType, list[int]] = {}
    for place, (left, _, _) in enumerate(pairs):
        by_dtype.setdefault(left.dtype, []).append(place)
    for dtype, places in by_dtype.items():
        for together, measured in _measured(dtype, places, pairs):
            for place, measurement in zip(together, measured, strict=True):
                found[place] = measurement
    return [
        measure_arrays(left, right, limit=limit) if one is None else one
        for one, (left, right, limit) in zip(found, pairs, strict=True)
    ]


def _measured(
    dtype: DType, places: list[int], pairs: Sequence[Small]
) -> Iterator[tuple[list[int], list[Measurement | None]]]:
    """What can be said of the pairs at these places, all of one dtype, some of them at a time."""
    kind = dtype_pair(dtype, dtype)
    if kernel.knows(kind):
        yield places, kernel.measure_many(EndToEnd([pairs[place] for place in places]))
    # isbuiltin 2: not numpy's own; the odd kinds of ml_dtypes have their own ways.
    elif kind.arithmetic is Arithmetic.FLOAT64 and (dtype.isbuiltin != 2 or kind.reference == "bfloat16"):
        same = EndToEnd([pairs[place] for place in places]).identical.tolist()
        for identical in (True, False):
            chosen = [place for place, one in zip(places, same, strict=True) if one is identical]
            for together in _cut(chosen, [pairs[place][0].size for place in chosen]):
                laid = EndToEnd([pairs[place] for place in together])
                yield together, Segments(laid, identical=identical).measurements()


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
