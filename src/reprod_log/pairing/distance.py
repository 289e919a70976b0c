"""How far apart two tensors are, of arrays and of entries, whatever was recorded of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reprod_log.recording import Array, Entry
from reprod_log.recording.sketch import sketch_of, stored_sketch

ANOTHER = 0.05
"""Relative difference from which on two tensors are not the same thing with rounding or a defect in it."""
SAME = 1e-3
"""Relative difference up to which they hold the same; rounding through a whole float32 model stays below."""
# Measured between torch and paddle on CPU: 1e-13 at most in float64 (eps is stored as float32), 1e-6 per layer in
# float32, growing to 1e-4 through a whole model. A wrong layout, partner or setting shows at 1e-6 in float64, and
# mostly far above.
LAYER_LIMIT = {"float64": 1e-9, "float32": 1e-4}


def relative(ours: Array, theirs: Array) -> float:
    """‖theirs - ours‖ / ‖ours‖; inf when ours is zero and theirs is not, or their shapes differ."""
    if ours.shape != theirs.shape:
        return math.inf
    ours, theirs = _wide(ours), _wide(theirs)
    size = float(np.linalg.norm(ours))
    error = float(np.linalg.norm(theirs - ours))
    return error / size if size else (0.0 if error == 0 else math.inf)


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, copy=False)


def factor(ours: Array, theirs: Array, *, within: float = 1e-4) -> float | None:
    """The one number that makes theirs out of ours; None when there is none."""
    size = float(np.vdot(ours, ours))
    if not size or not np.isfinite(ours).all() or not np.isfinite(theirs).all():
        return None
    ratio = float(np.vdot(ours, theirs)) / size
    left = float(np.linalg.norm(theirs - ratio * ours))
    return ratio if ratio and left <= within * abs(ratio) * size**0.5 else None


def difference(one: Sequence[Array], other: Sequence[Array]) -> float:
    """The largest relative difference (L2) over all outputs; infinite if they cannot be compared, NaN if not finite."""
    if len(one) != len(other) or not one:
        return float("inf")
    return max((relative(a, b) for a, b in zip(one, other, strict=True)), key=lambda x: (np.isnan(x), x))


def rearranged_difference(one: Sequence[Array], other: Sequence[Array]) -> float:
    """The same for outputs that may hold their values in another order (batch first or time first, say)."""
    direct = difference(one, other)
    if direct <= SAME or len(one) != len(other):
        return direct
    if any(a.size != b.size for a, b in zip(one, other, strict=True)):
        return float("inf")
    return difference([np.sort(a, axis=None) for a in one], [np.sort(b, axis=None) for b in other])


def gap(first: Entry, second: Entry) -> float:
    """The relative difference of two entries; NaN, which is neither small nor large, where none of their values are."""
    if first.shape != second.shape:
        return math.inf
    if first.hash and first.hash == second.hash:
        return 0.0
    return math.nan if "summary" in (first.detail, second.detail) else distance(first, second)


def distance(first: Entry, second: Entry) -> float:
    """The relative difference of two floating entries of one shape whose values, or sketches, are there."""
    if first.shape != second.shape or not first.dtype.startswith(("float", "bfloat", "complex")):
        return math.inf
    one, other = _values(first, second), _values(second, first)
    # Two tensors of zeros say nothing of each other.
    return relative(one, other) if np.any(one) else math.inf


def _values(entry: Entry, other: Entry) -> Array:
    """The values in float64, or their sketch where one of the two has nothing else: it keeps distances well enough."""
    if entry.detail == "sketch":
        return entry.read()
    array = entry.array()
    if other.detail == "sketch":
        like = stored_sketch(other)
        return sketch_of(array, form=like.form, made=like.made).values
    return _wide(array)
