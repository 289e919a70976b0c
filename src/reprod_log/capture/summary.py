"""Statistics of one array, for entries whose values are not kept."""

from __future__ import annotations

import math

import numpy as np

from reprod_log.record import Array

_BLOCK = 1 << 15
"""Elements handled at a time, so that the float64 copies stay in the cache."""

_ONES = np.ones(_BLOCK)


def summarise(array: Array) -> dict[str, float | int]:
    """min, max, mean, std, rms and abs_max of the finite values, and how many values are NaN or infinite.

    Accumulated in float64; for complex arrays of the magnitudes. NaN when there is no finite value.
    """
    flat = np.asarray(array, order="C").reshape(-1)
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    elif flat.dtype.kind not in "fiu" or flat.dtype.itemsize == 2:
        # bool, and half precision, whose minimum numpy computes many times slower than that of wide floats.
        flat = flat.astype(np.float32 if flat.dtype.itemsize <= 2 else np.float64)
    moments = _Moments()
    with np.errstate(over="ignore", invalid="ignore"):
        moments.add(flat)
    return moments.summary()


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

    def summary(self) -> dict[str, float | int]:
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
