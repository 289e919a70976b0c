"""Pairs of one dtype, laid end to end and reduced segment by segment: numpy's way to measure small tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from reprod_log.measure.dtypes import Array, DtypePair
from reprod_log.measure.elements import worst_at
from reprod_log.measure.fused import notes_of
from reprod_log.measure.measurement import Measurement, SideSummary
from reprod_log.measure.totals import made
from reprod_log.measure.ulp import ulp_steps

# The limits within which totals.py needs no second look.
_HUGE, _TINY = 2.0**480, 2.0**-440
_NORM_RATIO = 1.0 / 16


class Segments:
    """Some pairs of one dtype that float64 holds, in work together."""

    def __init__(self, pairs: Sequence[tuple[Array, Array, DtypePair, float | None]]) -> None:
        self._pairs = pairs
        self._sizes = np.array([left.size for left, _, _, _ in pairs])
        self._starts = np.concatenate(([0], np.cumsum(self._sizes)[:-1]))

    def measurements(self) -> Iterator[Measurement | None]:
        """A measurement for each pair, None where it is not an ordinary one: NaN, infinities, extreme sizes."""
        if sys.float_info.min * 0.5 == 0.0:
            # Subnormal numbers are flushed to zero in this thread; the usual way says so.
            yield from [None] * len(self._pairs)
            return
        with np.errstate(all="ignore"):
            columns, ordinary = self._columns()
        octaves = self._octaves
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        for place, (row, is_ordinary) in enumerate(zip(rows, ordinary.tolist(), strict=True)):
            yield self._measurement(place, row, octaves[place]) if is_ordinary else None

    def _columns(self) -> tuple[dict[str, Array], Array]:
        """Every statistic of every pair as columns, and which pairs they hold for."""
        left = np.concatenate([one.reshape(-1) for one, _, _, _ in self._pairs])
        right = np.concatenate([one.reshape(-1) for _, one, _, _ in self._pairs])
        a, b = left.astype(np.float64), right.astype(np.float64)
        difference = np.abs(a - b)
        sides = self._side(a), self._side(b)
        columns = self._differences(a, difference)
        columns.update(zip(("ulp_max", "ulp_mean"), self._ulp(left, right), strict=True))
        squares = [side.pop("squares") for side in sides]
        norms = np.sqrt(squares[0]), np.sqrt(squares[1])
        d, gap = np.sqrt(columns.pop("squares")), np.abs(norms[0] - norms[1])
        least = columns.pop("least")
        same = columns["differing"] == 0
        columns["rel_l2"] = np.where(same, 0.0, np.maximum(d / norms[0], least))
        cosine = np.clip((d - gap) * (d + gap) / (2.0 * norms[0] * norms[1]), 0.0, 2.0)
        columns["cosine"] = np.where(same, 0.0, cosine)
        for name, side in zip("ab", sides, strict=True):
            columns.update({f"{key}_{name}": column for key, column in side.items()})
        ordinary = same | ((np.minimum(*norms) >= _NORM_RATIO * np.maximum(*norms)) & (np.minimum(*norms) > 0.0))
        for size in (columns["abs_max_a"], columns["abs_max_b"], columns["max_abs"]):
            # Also false for NaN and infinities.
            ordinary &= (size == 0.0) | ((size > _TINY) & (size < _HUGE))
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
        }

    def _differences(self, reference: Array, difference: Array) -> dict[str, Array]:
        """What is known from the absolute differences; `_sizes` of totals.py says why they are bounded like this."""
        n, starts = self._sizes, self._starts
        most = np.maximum.reduceat(difference, starts)
        differing = np.add.reduceat((difference != 0.0).astype(np.int64), starts)
        least = np.where(differing > 0, 5e-324, 0.0)
        relative = np.where(difference == 0.0, 0.0, difference / np.abs(reference))
        most_rel = np.maximum(np.maximum.reduceat(relative, starts), least)
        squares = np.add.reduceat(difference * difference, starts)
        limits = np.array([np.inf if limit is None else limit for _, _, _, limit in self._pairs])
        beyond = difference > np.repeat(limits, n)
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
            "worst": self._first(difference == np.repeat(most, n)) - starts,
            "squares": squares,
            "least": least,
        }

    def _first(self, found: Array) -> Array:
        """The place of the first true element of each segment (of any later one, where there is none)."""
        places = np.append(np.flatnonzero(found), found.size)
        first: Array = places[np.searchsorted(places, self._starts)]
        return first

    def _ulp(self, left: Array, right: Array) -> tuple[Array, Array]:
        component = self._pairs[0][2].ulp_component
        if component is None:
            nothing = np.zeros(len(self._pairs))
            return nothing, nothing
        steps = ulp_steps(left, right, component=component)
        total = np.add.reduceat(steps.astype(np.float64), self._starts)
        return np.maximum.reduceat(steps, self._starts).astype(np.float64), total / self._sizes

    def _counted_octaves(self, difference: Array) -> list[tuple[tuple[int, int], ...]]:
        """The histogram of each segment, from the exponent bits (0: zeros and numbers too small for ordinary pairs)."""
        exponents = np.right_shift(difference.view(np.int64), 52)
        high = int(exponents.max())
        used = exponents[exponents > 0]
        low = int(used.min()) if used.size else high
        width = high - low + 1
        segment = np.repeat(np.arange(len(self._pairs)) * width, self._sizes)
        kept = exponents >= max(low, 1)
        counts = np.bincount((segment + (exponents - low))[kept], minlength=width * len(self._pairs))
        at = np.flatnonzero(counts)
        rows = zip((at % width + (low - 1023)).tolist(), counts[at].tolist(), strict=True)
        ends = np.searchsorted(at, np.arange(1, len(self._pairs) + 1) * width).tolist()
        listed = list(rows)
        return [tuple(listed[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    def _measurement(self, place: int, row: tuple[Any, ...], octaves: tuple[tuple[int, int], ...]) -> Measurement:
        left, right, pair, limit = self._pairs[place]
        (
            max_abs, mean_abs, min_abs, rmse, max_rel, mean_rel, differing, beyond, worst,
            max_ulp, mean_ulp, rel_l2, cosine_distance,
            min_a, max_a, mean_a, std_a, rms_a, abs_max_a, min_b, max_b, mean_b, std_b, rms_b, abs_max_b,
        ) = row  # fmt: skip
        has_ulp = pair.ulp_component is not None
        return made(
            Measurement,
            count=left.size,
            reference_dtype=pair.reference,
            candidate_dtype=pair.candidate,
            differing=differing,
            max_abs=max_abs,
            mean_abs=mean_abs,
            min_abs=min_abs,
            rmse=rmse,
            max_rel=max_rel,
            mean_rel=mean_rel,
            rel_l2=rel_l2,
            cosine_distance=cosine_distance,
            max_ulp=max_ulp if has_ulp else None,
            mean_ulp=mean_ulp if has_ulp else None,
            reference=made(SideSummary, min=min_a, max=max_a, mean=mean_a, std=std_a, rms=rms_a, abs_max=abs_max_a,
                           nan=0, inf=0),
            candidate=made(SideSummary, min=min_b, max=max_b, mean=mean_b, std=std_b, rms=rms_b, abs_max=abs_max_b,
                           nan=0, inf=0),
            worst=worst_at(worst, left, right),
            nan_both=0,
            nonfinite_mismatched=0,
            limit=limit,
            beyond_limit=None if limit is None else beyond,
            octaves=octaves,
            notes=notes_of(pair, left.size),
            estimate=None,
        )  # fmt: skip
