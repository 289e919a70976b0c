"""Statistics of one array, for entries whose values are not kept."""

from __future__ import annotations

import math

import numpy as np

from reprod_log.record import Array

_BLOCK = 1 << 15
"""Elements handled at a time, so that the float64 copies stay in the cache."""


def summarise(array: Array) -> dict[str, float | int]:
    """min, max, mean, std, rms and abs_max of the finite values, and how many values are NaN or infinite.

    Accumulated in float64; for complex arrays of the magnitudes. NaN when there is no finite value.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    total = _Moments()
    buffer = np.empty(min(_BLOCK, flat.size), np.float64)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        values = buffer[: block.size]
        values[...] = block
        total.add(values)
    return total.summary()


class _Moments:
    def __init__(self) -> None:
        self.count = self.nan = self.inf = 0
        self.low, self.high = math.inf, -math.inf
        self.mean = self.spread = self.squares = 0.0

    def add(self, values: Array) -> None:
        """Take in a block of float64 values; it is overwritten."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = float(np.dot(values, values))
        if not math.isfinite(squares):
            finite = np.isfinite(values)
            if not finite.all():
                nan = int(np.isnan(values).sum())
                self.nan += nan
                self.inf += values.size - int(finite.sum()) - nan
                values = values[finite]
            with np.errstate(over="ignore"):
                squares = float(np.dot(values, values))
        if not values.size:
            return
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        mean = float(values.mean())
        values -= mean
        with np.errstate(over="ignore"):
            spread = float(np.dot(values, values))
        # Two blocks put together without the cancellation of E[x²] − E[x]².
        count = self.count + values.size
        shift = mean - self.mean
        self.spread += spread + shift * shift * self.count * values.size / count
        self.mean += shift * values.size / count
        self.squares += squares
        self.count = count

    def summary(self) -> dict[str, float | int]:
        none = math.nan
        count = self.count
        return {
            "min": self.low if count else none,
            "max": self.high if count else none,
            "mean": self.mean if count else none,
            "std": math.sqrt(self.spread / count) if count else none,
            "rms": math.sqrt(self.squares / count) if count else none,
            "abs_max": max(abs(self.low), abs(self.high)) if count else none,
            "nan": self.nan,
            "inf": self.inf,
        }
