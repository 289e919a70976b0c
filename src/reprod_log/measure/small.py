"""Many small pairs at once. One pass costs dozens of calls however little there is to do; shared by hundreds of small
tensors that is nothing. The kernel takes them in one call, numpy lays them end to end and reduces them in segments.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np

from reprod_log.measure import kernel
from reprod_log.measure.columns import EndToEnd, Octaves, cut_octaves, measurements
from reprod_log.measure.dtypes import Arithmetic, Array, DType, dtype_pair
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement
from reprod_log.measure.numpy_pass import ulp_steps
from reprod_log.measure.totals import HUGE, NORM_RATIO, TINY

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
    """The measurements of the pairs at these places, all of one dtype, some at a time; None: measure it alone."""
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
                yield together, _Segments(laid, identical=identical).measurements()


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


class _Segments:
    """Pairs of one dtype that float64 holds, laid end to end and reduced segment by segment.

    Of `identical` ones nothing has to be compared.
    """

    def __init__(self, laid: EndToEnd, *, identical: bool = False) -> None:
        self._laid, self._identical = laid, identical
        self._sizes, self._starts = laid.sizes, laid.starts
        self._none = np.zeros(len(laid.pairs), np.int64)

    def measurements(self) -> list[Measurement | None]:
        """A measurement for each pair, None where it is not an ordinary one: NaN, infinities, extreme sizes."""
        if sys.float_info.min * 0.5 == 0.0:
            # Subnormal numbers are flushed to zero in this thread; measured alone, a note says so.
            return [None] * len(self._sizes)
        with np.errstate(all="ignore"):
            columns, ordinary = self._columns()
        return measurements(self._laid, columns, octaves=self._octaves, ordinary=ordinary)

    def _columns(self) -> tuple[dict[str, Array], Array]:
        """Every statistic of every pair as columns, and which pairs they hold for."""
        left, right = self._laid.left, self._laid.right
        a = left.astype(np.float64)
        if self._identical:
            sides = (self._side(a),) * 2
            columns = self._no_differences()
        else:
            b = right.astype(np.float64)
            sides = self._side(a), self._side(b)
            columns = self._differences(a, np.abs(a - b))
            columns.update(zip(("max_ulp", "mean_ulp"), self._ulp(left, right), strict=True))
        norms = np.sqrt(sides[0]["squares"]), np.sqrt(sides[1]["squares"])
        d, gap = np.sqrt(columns.pop("squares")), np.abs(norms[0] - norms[1])
        least = columns.pop("least")
        same = columns["differing"] == 0
        columns["rel_l2"] = np.where(same, 0.0, np.maximum(d / norms[0], least))
        cosine = np.clip((d - gap) * (d + gap) / (2.0 * norms[0] * norms[1]), 0.0, 2.0)
        columns["cosine_distance"] = np.where(same, 0.0, cosine)
        for name, side in zip("ab", sides, strict=True):
            columns.update({f"{key}_{name}": column for key, column in side.items()})
        ordinary = same | ((np.minimum(*norms) >= NORM_RATIO * np.maximum(*norms)) & (np.minimum(*norms) > 0.0))
        for size in (columns["abs_max_a"], columns["abs_max_b"], columns["max_abs"]):
            # Also false for NaN and infinities.
            ordinary &= (size == 0.0) | ((size > TINY) & (size < HUGE))
        return columns, ordinary

    def _side(self, values: Array) -> dict[str, Array]:
        n, starts = self._sizes, self._starts
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        mean = np.add.reduceat(values, starts) / n
        centred = values - np.repeat(mean, n)
        squares = np.add.reduceat(values * values, starts)
        return {
            "min": low,
            "max": high,
            # Rounding may put the mean of equal values one step outside of them.
            "mean": np.clip(mean, low, high),
            "std": np.where(low < high, np.sqrt(np.add.reduceat(centred * centred, starts) / n), 0.0),
            "rms": np.sqrt(squares / n),
            "abs_max": np.maximum(-low, high),
            "squares": squares,
            "nan": self._none,
            "inf": self._none,
        }

    def _no_differences(self) -> dict[str, Array]:
        """What `_differences` and `_ulp` say of pairs without any."""
        self._octaves: Octaves = [()] * len(self._sizes)
        numbers = ("max_abs", "mean_abs", "min_abs", "rmse", "max_rel", "mean_rel", "max_ulp", "mean_ulp")
        counts = ("differing", "beyond", "worst_at", "nan_both", "nonfinite_mismatched")
        nothing = np.zeros(len(self._sizes))
        return {**dict.fromkeys((*numbers, "squares", "least"), nothing), **dict.fromkeys(counts, self._none)}

    def _differences(self, reference: Array, difference: Array) -> dict[str, Array]:
        """What is known from the absolute differences; `_sizes` of totals.py says why they are bounded like this."""
        n, starts = self._sizes, self._starts
        most = np.maximum.reduceat(difference, starts)
        differing = np.add.reduceat((difference != 0.0).astype(np.int64), starts)
        least = np.where(differing > 0, 5e-324, 0.0)
        relative = np.where(difference == 0.0, 0.0, difference / np.abs(reference))
        most_rel = np.maximum(np.maximum.reduceat(relative, starts), least)
        squares = np.add.reduceat(difference * difference, starts)
        beyond = difference > np.repeat(self._laid.limits, n)
        self._octaves = self._counted_octaves(difference)
        return {
            "max_abs": most,
            "mean_abs": np.maximum(np.minimum(np.add.reduceat(difference, starts) / n, most), least),
            "min_abs": np.minimum.reduceat(difference, starts),
            "rmse": np.maximum(np.minimum(np.sqrt(squares / n), most), least),
            "max_rel": most_rel,
            "mean_rel": np.maximum(np.minimum(np.add.reduceat(relative, starts) / n, most_rel), least),
            "differing": differing,
            "beyond": np.add.reduceat(beyond.astype(np.int64), starts),
            "worst_at": self._first(difference == np.repeat(most, n)) - starts,
            "nan_both": self._none,
            "nonfinite_mismatched": self._none,
            "squares": squares,
            "least": least,
        }

    def _first(self, found: Array) -> Array:
        """The place of the first true element of each segment (of any later one, where there is none)."""
        places = np.append(np.flatnonzero(found), found.size)
        first: Array = places[np.searchsorted(places, self._starts)]
        return first

    def _ulp(self, left: Array, right: Array) -> tuple[Array, Array]:
        component = self._laid.kind.ulp_component
        if component is None:
            return self._none, self._none
        steps = ulp_steps(left, right, component=component)
        total = np.add.reduceat(steps.astype(np.float64), self._starts)
        return np.maximum.reduceat(steps, self._starts).astype(np.float64), total / self._sizes

    def _counted_octaves(self, difference: Array) -> Octaves:
        """The histogram of each segment, from the exponent bits (0: zeros and numbers too small for ordinary pairs)."""
        n = len(self._sizes)
        bins = np.right_shift(difference.view(np.int64), 52)
        low, high = int(bins.min()), int(bins.max())
        if low == 0:
            used = bins[bins > 0]
            low = int(used.min()) if used.size else 1
        # The first bin of each segment is for what is not counted.
        bins -= low - 1
        np.maximum(bins, 0, out=bins)
        width = max(high - low + 1, 1)
        bins += np.repeat(np.arange(n) * (width + 1), self._sizes)
        counts = np.bincount(bins, minlength=n * (width + 1)).reshape(n, width + 1)[:, 1:].ravel()
        at = np.flatnonzero(counts)
        ends = np.searchsorted(at, np.arange(1, n + 1) * width).tolist()
        return cut_octaves(at % width + (low - 1023), counts[at], ends)
