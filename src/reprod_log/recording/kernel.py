"""The optional C library for sketches and summaries, and how arrays are passed to C. Without it numpy does the work."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprod_log.recording.entry import Array

SOURCE = Path(__file__).with_name("sketch.c")
LIBRARY = Path(__file__).with_name("_sketch.so")
_SWITCH = "REPROD_LOG_NO_KERNEL"
_WIDE = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}
# The Statistics of sketch.c: the six that are returned, and the sums they were made from.
_Statistics = ctypes.c_double * 8

Six = tuple[float, ...]
"""min, max, mean, std, rms and abs_max."""


@dataclass(frozen=True)
class SketchKernel:
    """The two functions of the library."""

    sketch: Callable[..., int]
    summary: Callable[..., int]


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
        # Built for another machine: treated as missing.
        return None
    if built_from != hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]:
        return None
    whole, place = ctypes.c_int64, ctypes.c_void_p
    loaded.reprod_sketch.restype = loaded.reprod_summary.restype = ctypes.c_int32
    loaded.reprod_sketch.argtypes = [
        ctypes.c_int32, place, whole, whole, whole, ctypes.c_uint64, place, whole, place, place, place,
    ]  # fmt: skip
    loaded.reprod_summary.argtypes = [ctypes.c_int32, place, whole, place]
    return kernel


def statistics_of(flat: Array) -> Six | None:
    """The statistics of a contiguous array, not empty and all finite; None when the library cannot tell them."""
    kernel, wide = load(), _WIDE.get(flat.dtype)
    if kernel is None or wide is None:
        return None
    found = _Statistics()
    return tuple(found[:6]) if kernel.summary(wide, address_of(flat), flat.size, found) else None


def sketch_into(parts: Array, sketches: Array, *, seed: int, signs: Array, period: int) -> tuple[bool, Six | None]:
    """Whether the sketches of the parts (contiguous, a row each) were made; and the statistics of all, if finite.

    Without the library nothing is done.
    """
    kernel, wide = load(), _WIDE.get(parts.dtype)
    if kernel is None or wide is None:
        return False, None
    (number, length), size = parts.shape, sketches.shape[1]
    found, room = _Statistics(), np.empty(4 * size)
    sound = kernel.sketch(
        wide, address_of(parts), number, length, size, seed, address_of(signs), period,
        address_of(room), address_of(sketches), found,
    )  # fmt: skip
    return True, tuple(found[:6]) if sound else None


class _ArrayInterface(ctypes.Structure):
    """numpy's array interface for C, up to the address of the elements."""

    _fields_ = [
        ("two", ctypes.c_int),
        ("nd", ctypes.c_int),
        ("typekind", ctypes.c_char),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def address_of(array: NDArray[Any]) -> int:
    """The address of the first element; twice as fast as array.ctypes.data, which many small tensors feel."""
    address: int = _ArrayInterface.from_address(_capsule_pointer(array.__array_struct__, None)).data
    return address


def is_plain(array: NDArray[Any]) -> bool:
    """Whether the elements lie one after the other, in native bytes; at which address does not matter."""
    return array.flags.c_contiguous and array.dtype.isnative
