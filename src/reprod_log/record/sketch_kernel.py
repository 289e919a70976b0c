"""The optional C library for sketches and summaries: finds it and calls it. Without it numpy does the same work."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from reprod_log.record.entry import Array

SOURCE = Path(__file__).with_name("sketch.c")
LIBRARY = Path(__file__).with_name("_sketch.so")
_SWITCH = "REPROD_LOG_NO_KERNEL"
_WIDE = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}


@dataclass(frozen=True)
class SketchKernel:
    """The two functions of the library."""

    sketch: Callable[..., None]
    summary: Callable[..., None]


@lru_cache(maxsize=4)
def load(library: Path = LIBRARY) -> SketchKernel | None:
    """The library as it was built at install, looked for once per process; None when numpy has to do."""
    if os.environ.get(_SWITCH, "") not in ("", "0") or not library.exists():
        return None
    try:
        loaded = ctypes.CDLL(str(library))
        loaded.reprod_sketch_source.restype = ctypes.c_char_p
        built_from = loaded.reprod_sketch_source().decode()
        kernel = SketchKernel(loaded.reprod_sketch, loaded.reprod_summary)
    except (OSError, AttributeError):
        # Made for another machine: as good as none.
        return None
    if built_from != hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]:
        return None
    whole, number, place = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
    loaded.reprod_sketch.restype = loaded.reprod_summary.restype = None
    loaded.reprod_sketch.argtypes = [
        ctypes.c_int32, place, whole, whole, ctypes.c_uint64, place, whole, place, place, place,
    ]  # fmt: skip
    loaded.reprod_summary.argtypes = [ctypes.c_int32, place, whole, number, place]
    return kernel


@dataclass(frozen=True)
class Sums:
    """Extremes and sums of an array whose values are all finite (if one is not, or a square overflows, they tell)."""

    count: int
    min: float
    max: float
    sum: float
    squares: float

    @property
    def sound(self) -> bool:
        """Whether they can be relied on. A NaN may slip past minimum and maximum, but not past the squares."""
        return math.isfinite(self.squares) and math.isfinite(self.min) and math.isfinite(self.max)


def sums(flat: Array, *, around: float = 0.0) -> Sums | None:
    """The sums of a contiguous array, `around` taken from each value first; None when the library cannot do it."""
    kernel, wide = load(), _WIDE.get(flat.dtype)
    if kernel is None or wide is None:
        return None
    statistics = (ctypes.c_double * 4)(math.inf, -math.inf, 0.0, 0.0)
    kernel.summary(wide, flat.ctypes.data, flat.size, around, statistics)
    return Sums(flat.size, *statistics)


def add_to_buckets(flat: Array, buckets: Array, *, size: int, seed: int, signs: Array, period: int) -> Sums | None:
    """Sketch a contiguous array into the buckets, with its sums; None (and nothing done) without the library."""
    kernel, wide = load(), _WIDE.get(flat.dtype)
    if kernel is None or wide is None:
        return None
    statistics = (ctypes.c_double * 4)(math.inf, -math.inf, 0.0, 0.0)
    block = np.empty_like(buckets)
    kernel.sketch(
        wide, flat.ctypes.data, flat.size, size, seed, signs.ctypes.data, period,
        block.ctypes.data, buckets.ctypes.data, statistics,
    )  # fmt: skip
    return Sums(flat.size, *statistics)
