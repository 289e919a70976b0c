"""Statistics of one array, for entries whose values are not kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reprod_log.errors import UnreadableFile
from reprod_log.recording.entry import Array
from reprod_log.recording.kernel import Six, statistics_of

Summary = dict[str, float | int]
STATISTICS = ("min", "max", "mean", "std", "rms", "abs_max", "nan", "inf")

_BLOCK = 1 << 15
"""Elements handled at a time, so that the float64 copies stay in the cache."""

_ONES = np.ones(_BLOCK)


def summarise(array: Array) -> Summary:
    """min, max, mean, std, rms and abs_max of the finite values, and how many values are NaN or infinite.

    Accumulated in float64; for complex arrays of the magnitudes. NaN when there is no finite value.
    """
    flat = np.asarray(array, order="C").reshape(-1)
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    elif flat.dtype.kind not in "fiu" or flat.dtype.itemsize == 2:
        # bool, and half precision, whose minimum numpy computes many times slower than that of wide floats.
        flat = flat.astype(np.float32 if flat.dtype.itemsize <= 2 else np.float64)
    found = statistics_of(flat) if flat.size else None
    if found is not None:
        return of_finite(found)
    moments = _Moments()
    with np.errstate(over="ignore", invalid="ignore"):
        moments.add(flat)
    return moments.summary()


def of_finite(six: Six) -> Summary:
    """The statistics of values that are all finite."""
    low, high, mean, std, rms, abs_max = six
    return {"min": low, "max": high, "mean": mean, "std": std, "rms": rms, "abs_max": abs_max, "nan": 0, "inf": 0}


def check_summary(summary: object, *, where: object, needed: bool) -> None:
    """Raise unless `summary` has every statistic as a number; unless it is `needed` it may also be missing."""
    if summary is None and not needed:
        return
    if not isinstance(summary, dict) or not all(
        isinstance(summary.get(name), (int, float)) and not isinstance(summary[name], bool) for name in STATISTICS
    ):
        raise UnreadableFile(f"{where}: the statistics of an entry are damaged: {str(summary)[:200]}")


def joined(summaries: Sequence[Summary]) -> Summary:
    """The statistics of several arrays of one size as if they were one."""
    whole = [one for one in summaries if not math.isnan(one["rms"])]
    if not whole:
        return dict(summaries[0])
    mean = math.fsum(one["mean"] for one in whole) / len(whole)
    spread = math.fsum(one["std"] ** 2 + (one["mean"] - mean) ** 2 for one in whole) / len(whole)
    return {
        "min": min(one["min"] for one in whole),
        "max": max(one["max"] for one in whole),
        "mean": mean,
        "std": math.sqrt(spread),
        "rms": math.hypot(mean, math.sqrt(spread)),
        "abs_max": max(one["abs_max"] for one in whole),
        "nan": sum(int(one["nan"]) for one in summaries),
        "inf": sum(int(one["inf"]) for one in summaries),
    }


class _Moments:
    """Sums over blocks, taken around a number near the mean so that a large offset costs no digits."""

    def __init__(self) -> None:
        self.count = self.nan = self.inf = 0
        self.low, self.high = math.inf, -math.inf
        self.around: float | None = None
        self.sum = self.squares = 0.0

    def add(self, flat: Array) -> None:
        buffer = np.empty(min(_BLOCK, flat.size), np.float64)
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            low, high = float(block.min()), float(block.max())
            if not (math.isfinite(low) and math.isfinite(high)):
                block = self._finite(block)
                if not block.size:
                    continue
                low, high = float(block.min()), float(block.max())
            self.low, self.high = min(self.low, low), max(self.high, high)
            if self.around is None:
                self.around = float(block.mean(dtype=np.float64)) if abs(low + high) > high - low else 0.0
            values = buffer[: block.size]
            np.copyto(values, block)
            if self.around:
                values -= self.around
            # Products with BLAS: faster than numpy's own sums.
            self.sum += float(np.dot(values, _ONES[: block.size]))
            self.squares += float(np.dot(values, values))
            self.count += block.size

    def _finite(self, block: Array) -> Array:
        finite = np.isfinite(block)
        nan = int(np.isnan(block).sum())
        self.nan += nan
        self.inf += block.size - int(finite.sum()) - nan
        chosen: Array = block[finite]
        return chosen

    def summary(self) -> Summary:
        if not self.count or self.around is None:
            none = dict.fromkeys(("min", "max", "mean", "std", "rms", "abs_max"), math.nan)
            return {**none, "nan": self.nan, "inf": self.inf}
        shift = self.sum / self.count
        mean = self.around + shift
        variance = max(self.squares / self.count - shift * shift, 0.0)
        return {
            "min": self.low,
            "max": self.high,
            "mean": mean,
            "std": math.sqrt(variance),
            "rms": math.hypot(math.sqrt(variance), mean),
            "abs_max": max(abs(self.low), abs(self.high)),
            "nan": self.nan,
            "inf": self.inf,
        }
