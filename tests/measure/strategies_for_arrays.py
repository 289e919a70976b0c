"""Hypothesis strategies for pairs of arrays: every dtype, any layout, values from all corners."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

NARROW_FLOATS = [
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
]  # fmt: skip
NARROW_FLOATS = [name for name in NARROW_FLOATS if hasattr(ml_dtypes, name)]
FLOATS = ["float64", "float32", "float16", "bfloat16", *NARROW_FLOATS]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4", "uint4"]
COMPLEX = ["complex64", "complex128"]
ALL = [*FLOATS, *INTEGERS, *COMPLEX, "bool", "longdouble", "clongdouble"]


def dtype(name: str) -> np.dtype:
    """The dtype of this name, from numpy or ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def from_patterns(patterns: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """Elements whose bits are the given random 64-bit patterns, so that every value of the dtype can come up."""
    name = wanted.name
    if name == "bool":
        return (patterns & 1).astype(np.bool_)
    if name in ("int4", "uint4"):
        return ((patterns & 15).astype(np.int8) - (8 if name == "int4" else 0)).astype(wanted)
    if name in NARROW_FLOATS:
        bits = ml_dtypes.finfo(wanted).bits
        return (patterns & ((1 << bits) - 1)).astype(np.uint8).view(wanted)
    if wanted.char == "g":
        # Half a float64's bits below the last place of another one: more digits than float64 has.
        high = patterns.view(np.float64).astype(np.longdouble)
        return high + high * np.longdouble(2) ** -60
    if wanted.kind == "c":
        parts = from_patterns(patterns, wanted.type(0).real.dtype)
        return parts.astype(wanted) + from_patterns(patterns[::-1].copy(), parts.dtype) * wanted.type(1j)
    return patterns.astype(f"u{wanted.itemsize}").view(wanted)


def tame(seed: int, size: int, wanted: np.dtype, spread: float) -> np.ndarray:
    """Ordinary values, a few of them exactly zero."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size) * spread
    values[rng.random(size) < 0.2] = 0.0
    if wanted.kind == "b":
        return values > 0
    if wanted.kind == "u" or wanted.name.startswith("uint"):
        values = np.abs(values)
    with np.errstate(all="ignore"):
        return (values + 1j * values[::-1] if wanted.kind == "c" else values).astype(wanted)


@st.composite
def shapes(draw: Any) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0, 5), min_size=0, max_size=3)))


@st.composite
def values(draw: Any, wanted: np.dtype, size: int) -> np.ndarray:
    if draw(st.booleans()):
        patterns = draw(st.lists(st.integers(0, 2**64 - 1), min_size=size, max_size=size))
        with np.errstate(all="ignore"):
            return from_patterns(np.array(patterns, np.uint64), wanted)
    spread = draw(st.sampled_from([1.0, 100.0, 1e-22, 1e-160, 1e160, 1e300]))
    return tame(draw(st.integers(0, 2**32)), size, wanted, 1.0 if wanted.kind in "iu" else spread)


@st.composite
def laid_out(draw: Any, array: np.ndarray) -> np.ndarray:
    """The same array in another memory layout."""
    how = draw(st.sampled_from(["C", "F", "strided", "reversed", "swapped", "unaligned"]))
    if how == "F" and array.ndim:
        return np.asfortranarray(array)
    if how == "strided" and array.ndim:
        room = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        room[..., ::2] = array
        return room[..., ::2]
    if how == "reversed" and array.ndim:
        return array[::-1].copy()[::-1]
    if how == "swapped" and array.dtype.kind in "fiuc" and array.dtype.type.__module__ == "numpy":
        return array.astype(array.dtype.newbyteorder())
    if how == "unaligned" and array.dtype.kind in "fiuc":
        room = np.zeros(array.nbytes + 1, np.uint8)
        view = room[1:].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view
    return array


@st.composite
def array_pairs(draw: Any, names: list[str] = ALL, mixed: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of one shape; the second is unrelated, a small change of the first, or the same."""
    first = dtype(draw(st.sampled_from(names)))
    second = dtype(draw(st.sampled_from(names))) if mixed and draw(st.booleans()) else first
    shape = draw(shapes())
    size = int(np.prod(shape))
    reference = draw(values(first, size))
    kind = draw(st.sampled_from(["unrelated", "near", "same"]))
    with np.errstate(all="ignore"):
        candidate = draw(values(second, size)) if kind == "unrelated" else converted(reference, second)
        if kind == "near" and size:
            at = draw(st.integers(0, size - 1))
            candidate[at] = draw(values(second, 1))[0]
    reference, candidate = reference.reshape(shape), candidate.reshape(shape)
    return draw(laid_out(reference)), draw(laid_out(candidate))


def converted(array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """A copy as another dtype; what does not fit becomes something else, which is just as good to compare."""
    if array.dtype.kind == "c" and wanted.kind != "c":
        array = array.real
    if array.dtype == wanted:
        return array.copy()
    if wanted.kind in "iub" or "int" in wanted.name:
        wide = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=7.0, neginf=0.0)
        low, high = (0, 7) if "4" in wanted.name and "64" not in wanted.name else (0, 2**62)
        clipped = np.clip(np.abs(wide), low, min(high, 2 ** (8 * wanted.itemsize - 2)))
        return clipped.astype(np.int64).astype(wanted)
    if wanted.type.__module__ != "numpy" or array.dtype.type.__module__ != "numpy":
        return array.astype(np.float64).astype(wanted)
    return array.astype(wanted)
