"""How a pair of dtypes is compared: in which arithmetic, exactly or for equality only, and what is said about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
DType: TypeAlias = "np.dtype[Any]"


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
    note: str | None

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


def notes_of(pair: DtypePair, count: int) -> tuple[str, ...]:
    """What a reader of the measurement should know about how these dtypes were compared."""
    notes = () if pair.note is None else (pair.note,)
    return notes if count else (*notes, "both are empty")


def dtype_name(dtype: DType) -> str:
    """The name people use: 'float32' for either byte order, '<U5' for text."""
    return dtype.name if _family(dtype) != "other" else str(dtype)


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


def _note(names: tuple[str, str], *, same: bool, arithmetic: Arithmetic) -> str | None:
    if arithmetic is Arithmetic.EQUALITY:
        which = names[0] if names[0] == names[1] else f"{names[0]} against {names[1]}"
        return f"{which}, compared for equality only"
    if same:
        return None
    how = {
        Arithmetic.INTEGER: "compared as exact integers",
        Arithmetic.SPLIT: "compared as exact integer against float",
    }
    return f"{names[0]} against {names[1]}, {how.get(arithmetic, f'compared in {_WIDE[arithmetic].name}')}"
