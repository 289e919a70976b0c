"""The three numbers that 1.0.1 printed for a pair of arrays, computed so that they cannot lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from reprod_log.classic.loaded import ORDINARY, Stored, stored
from reprod_log.errors import ClassicUsageError, UnmatchedKeys, listed, near_names
from reprod_log.frameworks.tensors import to_numpy
from reprod_log.recording import Array, dtype_name
from reprod_log.recording.entry import is_masked

if TYPE_CHECKING:
    from reprod_log.measure.measurement import Measurement

_AGREES = 1e-3
"""A statistic in the arrays' own precision is shown when it is this close to the exact one; else it lied."""

_NUMBERS = (int, float, complex, np.number)
_PIECE = 1 << 16
"""Elements that are compared at a time: three such arrays fit the cache."""
_SMALLEST = 1e-30
"""A float32 below this begins to lose digits when it is divided by the number of elements."""


class Difference(dict[str, Any]):
    """The leaf of a diff dict: exactly mean, max and min, with what else there is to say in `notes`."""

    def __init__(self, mean: Any, max: Any, min: Any, *notes: str) -> None:
        super().__init__(mean=_scalar(mean), max=_scalar(max), min=_scalar(min))
        self.notes = notes


def _scalar(value: Any) -> Any:
    """The number as a numpy scalar, which is what 1.0.1 gave: scripts call `.item()` and `.astype()` on it."""
    if isinstance(value, np.generic):
        return value
    if isinstance(value, int):
        return np.int64(value) if -(2**63) <= value < 2**63 else np.uint64(value) if 0 <= value < 2**64 else value
    return np.float64(value)


def check_data(data1: Mapping[str, Any], data2: Mapping[str, Any]) -> None:
    """Raise UnmatchedKeys, naming every key that only one side has, unless both have the same keys."""
    only1 = [key for key in data1 if key not in data2]
    only2 = [key for key in data2 if key not in data1]
    if not only1 and not only2:
        return
    parts = []
    for name, alone, other in (("first", only1, only2), ("second", only2, only1)):
        if alone:
            near = [
                f"{key!r} looks like {found[0]!r}"
                for key in map(str, alone[:5])
                if (found := near_names(key, tuple(map(str, other)), most=1))
            ]
            hint = f" ({'; '.join(near)})" if near else ""
            count = f"{len(alone)} key{'s are' if len(alone) > 1 else ' is'}"
            parts.append(f"{count} only in the {name} data: {listed(map(str, alone))}{hint}")
    raise UnmatchedKeys(". ".join(parts) + ". Give both sides the same keys.")


def compute_diff(data1: Mapping[str, Any], data2: Mapping[str, Any], equal_nan: bool = False) -> dict[str, Any]:
    """mean, max and min of |data1 − data2| for every key of either side, nested dicts included.

    A key that one side lacks gets NaN, which passes no threshold, and a note.
    """
    found: dict[str, Any] = {}
    # Around all of them: for a small array it takes longer than the arithmetic.
    with np.errstate(all="ignore"):
        for key in data1:
            found[key] = _diff(stored(data1, key), stored(data2, key), equal_nan) if key in data2 else _alone("first")
    for key in data2:
        if key not in data1:
            found[key] = _alone("second")
    return found


def _diff(one: Any, two: Any, equal_nan: bool) -> dict[str, Any]:
    if isinstance(one, dict) and isinstance(two, dict):
        return compute_diff(one, two, equal_nan)
    if isinstance(one, dict) or isinstance(two, dict):
        return _nothing(f"one side is a dict, the other {type(two if isinstance(one, dict) else one).__name__}")
    in_pieces = _in_pieces(one, two) if isinstance(one, Stored) and isinstance(two, Stored) else None
    return in_pieces or array_difference(_array(one), _array(two), equal_nan=equal_nan)


def _array(value: Any) -> Array:
    if isinstance(value, Stored):
        return value.array()
    if isinstance(value, np.ndarray):
        return value
    return to_numpy(value)


def array_difference(one: Array, two: Array, *, equal_nan: bool = False) -> Difference:
    """The difference of two arrays, or NaN with the reason when they cannot be compared."""
    if is_masked(one) or is_masked(two):
        return _masked(one, two, equal_nan)
    plain = _plain(one, two)
    if plain is not None:
        return plain
    boxed = _boxed_numbers(one, two)
    if boxed is not None:
        return boxed
    # A script that only logs does not wait for the engine.
    from reprod_log.measure.fused import measure_arrays

    notes: list[str] = []
    if one.shape != two.shape:
        if {one.shape, two.shape} == {(), (1,)}:
            one = one.reshape(two.shape)
        elif one.transpose().shape == two.shape:
            notes.append(f"the first was transposed: {list(one.shape)} to {list(two.shape)}")
            one = one.transpose()
        else:
            return _nothing(f"shapes differ: {list(one.shape)} and {list(two.shape)}")
    kinds = {dtype_name(array.dtype) for array in (one, two)}
    if kinds & {"str", "object"} and len(kinds) > 1:
        return _nothing(f"kinds differ: {dtype_name(one.dtype)} and {dtype_name(two.dtype)}")
    measured = measure_arrays(one, two)
    problem = _problem(measured, equal_nan)
    if problem:
        return _nothing(*notes, problem)
    if measured.count == 0:
        return Difference(0.0, 0.0, 0.0, *notes, "both are empty")
    if measured.nan_both:
        notes.append(f"{measured.nan_both} NaN on both sides counted as equal")
        if not measured.comparable:
            return Difference(0.0, 0.0, 0.0, *notes)
    return Difference(*_statistics(one, two, measured), *notes, *_dtype_note(one, two))


def _masked(one: Array, two: Array, equal_nan: bool) -> Difference:
    """Of masked arrays what neither hides; what only one side hides was not compared."""
    masks = np.ma.getmaskarray(one), np.ma.getmaskarray(two)
    if one.shape != two.shape or not np.array_equal(*masks):
        return _nothing("masks differ" if one.shape == two.shape else f"shapes differ: {one.shape} and {two.shape}")
    seen = ~masks[0]
    return array_difference(np.ma.getdata(one)[seen], np.ma.getdata(two)[seen], equal_nan=equal_nan)


def _boxed_numbers(one: Array, two: Array) -> Difference | None:
    """The difference of arrays of objects that are numbers, in Python's own arithmetic as in 1.0.1; else None."""
    if "O" not in (one.dtype.kind, two.dtype.kind) or one.shape != two.shape or not one.size:
        return None
    for array in (one, two):
        if array.dtype.kind == "O" and not all(isinstance(item, _NUMBERS) for item in array.reshape(-1)):
            return None
        if array.dtype.kind not in "Oiufc":
            return None
    try:
        own = np.abs(one.astype(object) - two.astype(object))
        shown = own.mean(), own.max(), own.min()
        finite = math.isfinite(shown[0]) and math.isfinite(shown[1])
    except (TypeError, OverflowError):
        return None
    return Difference(*shown) if finite else _nothing("NaN or infinities among objects")


def _plain(one: Array, two: Array) -> Difference | None:
    """The everyday case, as fast as 1.0.1 has it: numbers that cannot lie, since all of them are of ordinary size.

    numpy sums a contiguous array in pairs, so its mean is good to some last digits unless something overflows or is too
    small for the digits that there are.
    """
    if one.dtype not in ORDINARY or one.dtype != two.dtype or one.shape != two.shape or not one.size:
        return None
    own = np.asarray(one - two)
    # In place: fresh memory for large arrays costs more than the arithmetic.
    np.abs(own, out=own)
    return _truthful(own.mean(), own.max(), own.min()) if own.flags.c_contiguous else None


def _in_pieces(one: Stored, two: Stored) -> Difference | None:
    """`_plain` of arrays that stay in their files, to the same bits: pieces that fit the cache are added up in the tree
    in which numpy adds up a contiguous array."""
    if one.dtype != two.dtype or one.shape != two.shape:
        return None
    rooms = [np.empty(_PIECE, one.dtype) for _ in range(3)]

    def added(start: int, count: int) -> tuple[Any, Any, Any]:
        """Sum, largest and smallest of these differences."""
        if count > _PIECE:
            half = count // 2
            half -= half % 8
            (total, most, least), (more, other, another) = added(start, half), added(start + half, count - half)
            return total + more, np.maximum(most, other), np.minimum(least, another)
        ours, theirs, own = (room[:count] for room in rooms)
        np.subtract(one.piece(start, ours), two.piece(start, theirs), out=own)
        np.abs(own, out=own)
        return own.sum(), own.max(), own.min()

    total, most, least = added(0, one.size)
    for side in (one, two):
        side.file.check()
    return _truthful(one.dtype.type(total / one.size), most, least)


def _truthful(mean: Any, most: Any, least: Any) -> Difference | None:
    if not math.isfinite(mean) or not math.isfinite(most):
        return None
    return Difference(mean, most, least) if most == 0 or mean > _SMALLEST else None


def _statistics(one: Array, two: Array, measured: Measurement) -> tuple[Any, Any, Any]:
    """mean, max, min as 1.0.1 shows them: in the arrays' own precision where that tells the truth."""
    exact = (measured.mean_abs, measured.max_abs, measured.min_abs)
    if one.dtype.kind in "iub" and two.dtype.kind in "iub":
        return measured.mean_abs, _whole(measured.max_abs), _whole(measured.min_abs)
    try:
        common = np.result_type(one.dtype, two.dtype)
    except TypeError:
        return exact
    if common.name not in ("float32", "float64", "complex64", "complex128"):
        return exact
    with np.errstate(all="ignore"):
        own = np.abs(one - two)
        shown = (own.mean(), own.max(), own.min())
    truthful = all(
        math.isclose(float(seen), true, rel_tol=_AGREES, abs_tol=0.0) for seen, true in zip(shown, exact, strict=True)
    )
    return shown if truthful else exact


def _whole(value: float) -> int | float:
    return int(value) if math.isfinite(value) else value


def _problem(measured: Measurement, equal_nan: bool) -> str:
    reference, candidate = measured.reference, measured.candidate
    if measured.nonfinite_mismatched or (measured.nan_both and not equal_nan):
        return (
            f"NaN: {reference.nan} and {candidate.nan} of {measured.count}, "
            f"Inf: {reference.inf} and {candidate.inf}; "
            f"{measured.nonfinite_mismatched} on one side only, {measured.nan_both} NaN on both"
        )
    if measured.differing and math.isnan(measured.max_abs):
        where = f", first at {list(measured.worst.index)}" if measured.worst else ""
        return f"{measured.differing} of {measured.count} values are not equal{where}"
    return ""


def _dtype_note(one: Array, two: Array) -> tuple[str, ...]:
    if one.dtype == two.dtype or one.dtype.name == two.dtype.name:
        return ()
    # Mixed widths of one kind are everyday (float32 against float64) and printed nothing in 1.0.1.
    if one.dtype.kind == two.dtype.kind:
        return ()
    return (f"dtypes differ: {one.dtype.name} and {two.dtype.name}",)


def _alone(side: str) -> Difference:
    return _nothing(f"only in the {side} data")


def _nothing(*notes: str) -> Difference:
    nan = math.nan
    return Difference(nan, nan, nan, *notes)


def chosen_methods(diff_method: Any) -> list[str]:
    """The statistics to check: mean, max, min, all three, or a list of them."""
    known = ("mean", "max", "min")
    if diff_method == "all":
        return ["min", "max", "mean"]
    methods = [diff_method] if isinstance(diff_method, str) else list(diff_method)
    if not methods or any(method not in known for method in methods):
        raise ClassicUsageError(
            f"diff_method must be 'mean', 'max', 'min', 'all', or a non-empty list of the first three, "
            f"not {diff_method!r}"
        )
    return methods
