"""How a pair of dtypes is compared: in which arithmetic, exactly or for equality only, and with which note.

Arrays without arithmetic (text, objects, dates, records) are measured here: equal or not, element by element. Where all
are equal, every difference is 0. Where any is not, every statistic is NaN, which passes no limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reprod_log.measure.measurement import Measurement, SideSummary, Worst
from reprod_log.messages import Message, message

Array: TypeAlias = NDArray[Any]
DType: TypeAlias = "np.dtype[Any]"

_NO_NUMBERS = SideSummary(math.nan, math.nan, math.nan, math.nan, math.nan, math.nan)
_TEXTS: dict[type, type] = {np.str_: str, np.bytes_: bytes}
_LONGEST_TEXT = 80
_TEXT_BEFORE = 30
"""Of a long text, how much stands before the first letter that differs."""


class Arithmetic(Enum):
    """The arithmetic that holds every value of both sides without turning different values into equal ones."""

    FLOAT64 = "float64"
    """Both sides convert to float64 without loss: floats of at most 64 bits, integers of at most 32, bool."""
    INTEGER = "integer"
    """A 64-bit integer against an integer: the distance is taken in integers and rounded once."""
    SPLIT = "split"
    """A 64-bit integer against a float: the integer is split into two exact halves."""
    COMPLEX128 = "complex128"
    LONGDOUBLE = "longdouble"
    CLONGDOUBLE = "clongdouble"
    EQUALITY = "equality"
    """Text, objects, dates, records: equal or not, there is no difference to take."""


@dataclass(frozen=True)
class DtypePair:
    """What the pass has to know about the two dtypes."""

    reference: str
    candidate: str
    same: bool
    arithmetic: Arithmetic
    ulp_component: DType | None
    """The floating dtype whose steps are counted (the component of a complex one); None: no ULP distance."""
    may_be_nonfinite: bool
    note: Message | None

    @property
    def wide(self) -> DType:
        """The dtype both sides are converted to, block by block."""
        return _WIDE[self.arithmetic]


_WIDE: dict[Arithmetic, DType] = {
    Arithmetic.FLOAT64: np.dtype(np.float64),
    Arithmetic.INTEGER: np.dtype(np.float64),
    Arithmetic.SPLIT: np.dtype(np.float64),
    Arithmetic.COMPLEX128: np.dtype(np.complex128),
    Arithmetic.LONGDOUBLE: np.dtype(np.longdouble),
    Arithmetic.CLONGDOUBLE: np.dtype(np.clongdouble),
    Arithmetic.EQUALITY: np.dtype(object),
}

# Half-precision complex numbers have no numpy name for their component.
_ML_COMPLEX = {"complex32": "float16", "bcomplex32": "bfloat16"}
_LONG_IS_DOUBLE = np.finfo(np.longdouble).nmant == np.finfo(np.float64).nmant


@lru_cache(maxsize=256)
def dtype_pair(reference: DType, candidate: DType) -> DtypePair:
    """How arrays of these two dtypes are compared, with the note that a reader should see, if any."""
    left, right = reference.newbyteorder("="), candidate.newbyteorder("=")
    kinds = {_family(left), _family(right)}
    same = left == right
    arithmetic = _arithmetic(left, right, kinds)
    component = _component(left) if same and arithmetic is not Arithmetic.EQUALITY else None
    names = (dtype_name(reference), dtype_name(candidate))
    return DtypePair(
        reference=names[0],
        candidate=names[1],
        same=same,
        arithmetic=arithmetic,
        ulp_component=component,
        may_be_nonfinite=bool(kinds & {"float", "complex"}),
        note=_note(names, same=same, arithmetic=arithmetic),
    )


def notes_of(pair: DtypePair, count: int) -> tuple[Message, ...]:
    """What a reader of the measurement should know about how these dtypes were compared."""
    notes = () if pair.note is None else (pair.note,)
    return notes if count else (*notes, message("note.measure.empty"))


def dtype_name(dtype: DType) -> str:
    """The name people use: 'float32' for either byte order, '<U5' for text."""
    return dtype.name if _family(dtype) != "other" else str(dtype)


def is_floating(array: Array) -> bool:
    """Whether the values are real floating-point numbers, numpy's own or not."""
    return _family(array.dtype) == "float"


def integer_bits(dtype: DType) -> int:
    """How many bits an integer dtype needs; 0 for anything that is not an integer."""
    if _family(dtype) != "integer":
        return 0
    return 8 * dtype.itemsize


def _family(dtype: DType) -> str:
    if dtype.type.__module__.split(".")[0] == "ml_dtypes":
        if "complex" in dtype.name:
            return "complex"
        return "integer" if "int" in dtype.name else "float"
    return {"f": "float", "i": "integer", "u": "integer", "b": "bool", "c": "complex"}.get(dtype.kind, "other")


def _arithmetic(left: DType, right: DType, kinds: set[str]) -> Arithmetic:
    if "other" in kinds:
        return Arithmetic.EQUALITY
    long = not _LONG_IS_DOUBLE and bool({left.char, right.char} & {"g", "G"})
    if "complex" in kinds:
        return Arithmetic.CLONGDOUBLE if long else Arithmetic.COMPLEX128
    if long:
        return Arithmetic.LONGDOUBLE
    if max(integer_bits(left), integer_bits(right)) <= 32:
        return Arithmetic.FLOAT64
    return Arithmetic.SPLIT if "float" in kinds else Arithmetic.INTEGER


def _component(dtype: DType) -> DType | None:
    """The dtype whose representable steps a ULP counts."""
    if dtype.char in "gG" and not _LONG_IS_DOUBLE:
        return None
    if dtype.name in _ML_COMPLEX:
        return _ml_dtype(_ML_COMPLEX[dtype.name])
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    return dtype if _family(dtype) == "float" else None


def _ml_dtype(name: str) -> DType:
    if name == "float16":
        return np.dtype(np.float16)
    import ml_dtypes

    dtype: DType = np.dtype(getattr(ml_dtypes, name))
    return dtype


def _note(names: tuple[str, str], *, same: bool, arithmetic: Arithmetic) -> Message | None:
    reference, candidate = names
    if arithmetic is Arithmetic.EQUALITY and reference == candidate:
        return message("note.measure.equality", dtype=reference)
    if arithmetic is Arithmetic.EQUALITY:
        return message("note.measure.equality_of_two", reference=reference, candidate=candidate)
    if same:
        return None
    if arithmetic is Arithmetic.INTEGER:
        return message("note.measure.integers", reference=reference, candidate=candidate)
    if arithmetic is Arithmetic.SPLIT:
        return message("note.measure.integer_and_float", reference=reference, candidate=candidate)
    return message("note.measure.wide", reference=reference, candidate=candidate, wide=_WIDE[arithmetic].name)


def measure_equality(reference: Array, candidate: Array, *, pair: DtypePair, limit: float | None) -> Measurement:
    """How many elements are not equal, and the first of them."""
    left, right = reference.reshape(-1), candidate.reshape(-1)
    unequal = np.flatnonzero(~_elements_equal(left, right))
    differing = int(unequal.size)
    size = math.nan if differing else 0.0
    worst = None
    if left.size:
        at = int(unequal[0]) if differing else 0
        index = tuple(int(i) for i in np.unravel_index(at, reference.shape))
        worst = Worst(index, *_as_texts(left[at], right[at]))
    names = pair.reference, pair.candidate
    return Measurement.of_one_size(left.size, names, size, (_NO_NUMBERS, _NO_NUMBERS))._replace(
        differing=differing,
        worst=worst,
        limit=limit,
        # What has no size lies within no limit.
        beyond_limit=None if limit is None else differing,
        notes=() if pair.note is None else (pair.note,),
    )


def _elements_equal(left: Array, right: Array) -> Array:
    kinds = left.dtype.kind, right.dtype.kind
    # numpy compares text with text and dates with dates; of anything else each element decides for itself.
    if kinds in {("U", "U"), ("S", "S"), ("M", "M"), ("m", "m")}:
        equal: Array = left == right
        return equal
    pairs = zip(left.astype(object), right.astype(object), strict=True)
    return np.fromiter((_objects_equal(a, b) for a, b in pairs), np.bool_, count=left.size)


def _objects_equal(left: Any, right: Any) -> bool:
    """Whether two objects are equal and of one kind, to the last item; those that cannot be compared are not."""
    try:
        left, right = (one.tolist() if isinstance(one, np.ndarray) else one for one in (left, right))
        if _kind(left) != _kind(right):
            return False
        if isinstance(left, (list, tuple)):
            return len(left) == len(right) and all(map(_objects_equal, left, right))
        if isinstance(left, dict):
            return _objects_equal(list(left), list(right)) and _objects_equal(list(left.values()), list(right.values()))
        return bool(left == right)
    except (TypeError, ValueError, RecursionError):
        return False


def _kind(value: Any) -> Any:
    """What a value may be equal to: Python has True equal 1, and a flag is not a number."""
    if isinstance(value, (bool, np.bool_)):
        return bool
    return complex if isinstance(value, (int, float, complex, np.number)) else _TEXTS.get(type(value), type(value))


def _as_texts(left: Any, right: Any) -> tuple[str, str]:
    """Both as text; of long ones the part where they begin to differ."""
    texts = _element_text(left), _element_text(right)
    apart = next((at for at, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(0, apart - _TEXT_BEFORE) if max(map(len, texts)) > _LONGEST_TEXT else 0
    ours, theirs = (_shortened(text, start) for text in texts)
    return ours, theirs


def _element_text(value: Any) -> str:
    if isinstance(value, (np.datetime64, np.timedelta64)) and np.datetime_data(value.dtype)[0] == "generic":
        # Numbers without a unit, which numpy itself refuses to print.
        return str(value.astype(np.int64))
    return repr(value.item() if isinstance(value, np.generic) and value.dtype.kind in "US" else value)


def _shortened(text: str, start: int) -> str:
    head = "…" if start else ""
    rest = head + text[start:]
    return rest if len(rest) <= _LONGEST_TEXT else f"{rest[: _LONGEST_TEXT - 1]}…"
