"""Entry: one recorded tensor, whose data is read only when asked for; dtypes by name; the hash of a tensor."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from reprod_log.errors import RecordingError, UnreadableFile, UsageError, ValuesNotRecorded
from reprod_log.recording.key import Key

Array = NDArray[Any]
_DATE_DTYPE = re.compile(r"(datetime|timedelta)64\[[0-9]{0,9}[A-Za-z]{1,2}\]")
_BYTES_DTYPE = re.compile(r"bytes[0-9]{1,9}")
Detail = Literal["full", "summary", "sketch"]


@dataclass(frozen=True, init=False)
class Entry:
    """A recorded tensor: its key, its dtype and shape as the framework had them, and a way to its data."""

    key: Key
    shape: tuple[int, ...]
    dtype: str
    """Name of the dtype on the framework's side: float32, bfloat16, int64, complex64, str, object …"""
    read: Callable[[], Array] = field(repr=False, compare=False)
    """Gives the data; may map it from disk. Use `array()`."""
    layer_type: str = ""
    """Class of the module that produced it, e.g. `Linear`; '' when there was none."""
    detail: Detail = "full"
    hash: str = ""
    """xxh3-128 of dtype, shape and bytes; '' when not known."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Small facts beside the tensor (JSON values): statistics, sketch, reduction length, notes."""

    def __init__(
        self,
        key: Key,
        shape: tuple[int, ...],
        dtype: str,
        read: Callable[[], Array],
        layer_type: str = "",
        detail: Detail = "full",
        hash: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        # Tens of thousands are made at once; what dataclasses write for frozen values takes more than twice as long.
        values = self.__dict__
        values["key"], values["shape"], values["dtype"], values["read"] = key, shape, dtype, read
        values["layer_type"], values["detail"], values["hash"] = layer_type, detail, hash
        values["meta"] = {} if meta is None else meta

    def array(self) -> Array:
        """The data as numpy has it, read now. It must not be written to."""
        if self.detail != "full":
            raise ValuesNotRecorded(
                f"{str(self.key)!r} was recorded as {self.detail!r} only, so its values are not there. "
                "Record it again with detail='full' to see them."
            )
        return self.read()

    def is_zero(self) -> bool:
        """Whether every value is 0, by the statistics where the values were not recorded."""
        if self.detail == "full":
            return not self.array().any()
        found = self.meta.get("summary", {})
        return found.get("abs_max") == 0 and not found["nan"] and not found["inf"]

    @property
    def stored_as(self) -> tuple[str, tuple[int, ...]] | None:
        """dtype and shape of what `read` gives: the values, or the numbers of a sketch; None for a summary."""
        if self.detail == "full":
            return self.dtype, self.shape
        if self.detail == "summary":
            return None
        facts = self.meta["sketch"]
        return "float64", (facts.get("parts", 1), facts["size"])

    @property
    def nbytes(self) -> int:
        """Size of the data in memory (0 for text)."""
        if self.dtype in ("str", "object"):
            return 0
        return prod(self.shape) * dtype_named(self.dtype).itemsize


@lru_cache(maxsize=256)
def dtype_named(name: str) -> np.dtype[Any]:
    """The numpy dtype called `name`, the kinds of ml_dtypes (bfloat16, float8…) included."""
    # One word: numpy also reads lists of fields and repetitions, which no entry has. Dates say what they count.
    if name.replace("_", "").isalnum() or _DATE_DTYPE.fullmatch(name):
        try:
            # numpy does not read the name that it gives to bytes: their length in bits.
            return np.dtype(f"S{int(name[5:]) // 8}") if _BYTES_DTYPE.fullmatch(name) else np.dtype(name)
        except (TypeError, ValueError, OverflowError):
            import ml_dtypes

            kind = getattr(ml_dtypes, name, None)
            if isinstance(kind, type) and issubclass(kind, np.generic):
                return np.dtype(kind)
    raise RecordingError(f"unknown dtype {name!r}: neither numpy nor ml_dtypes has it")


# numpy builds the name again each time, which costs more than hashing a small tensor.
@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """What a dtype is called in recordings: independent of byte order, `str` for text, `object` for the rest."""
    if dtype.kind == "U":
        return "str"
    if dtype.kind == "O":
        return "object"
    if dtype.type is np.void:
        raise UsageError(f"an array of records ({dtype}) is not a tensor; record each of its fields by itself")
    return dtype.name


def no_values() -> Array:
    """Stands for `read` where only statistics were recorded; `Entry.array` raises before it is called."""
    raise AssertionError("Entry.array() raises for entries without values")


def is_shape(numbers: tuple[Any, ...]) -> bool:
    """Whether these numbers from a file can be the shape of an array."""
    for number in numbers:
        if type(number) is not int or not 0 <= number < 1 << 63:
            return False
    return len(numbers) <= 64


def nothing(shape: tuple[int, ...], dtype: np.dtype[Any], *, where: str) -> Array:
    """An array without data; what claims elements of no size is refused, because numpy would make room for them."""
    try:
        if prod(shape) == 0:
            return np.empty(shape, dtype)
    except (ValueError, OverflowError) as error:
        raise UnreadableFile(f"{where}: the shape {list(shape)} is impossible ({error})") from error
    raise UnreadableFile(f"{where}: {prod(shape)} elements of size 0 are not an array")


def real_text(array: Array, *, where: str) -> Array:
    """The array as a file has it, unless it is text with a number that no character has: Python could not show it."""
    if array.dtype.kind == "U" and array.size:
        codes = np.ravel(array, "K").view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if codes.size and codes.max() > sys.maxunicode:
            raise UnreadableFile(f"{where}: text with the character {int(codes.max()):#x}, which does not exist")
    return array


def is_masked(value: Any) -> bool:
    """Whether it is an array of numpy.ma, which only those who have one wait for."""
    return type(value) is not np.ndarray and isinstance(value, np.ndarray) and isinstance(value, np.ma.MaskedArray)


def exact_array(value: Any) -> Array:
    """numpy's array of a value. Text and bytes that end in NUL stay objects: numpy would drop what it pads with."""
    if not isinstance(value, np.ndarray) and _ends_in_nul(value):
        return np.array(value, object)
    return np.asarray(value)


def _ends_in_nul(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_ends_in_nul, value))
    return value[-1:] in ("\0", b"\0") if isinstance(value, (str, bytes)) else False


def content_hash(array: Array) -> str:
    """xxh3-128 of dtype, shape and bytes: equal tensors have equal hashes."""
    hasher = xxhash.xxh3_128(f"{dtype_name(array.dtype)}{array.shape}".encode())
    if array.size:
        plain = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        # 2: not numpy's own; those of ml_dtypes do not show their bytes.
        hasher.update(plain.reshape(-1).view(np.uint8).data if plain.dtype.isbuiltin == 2 else plain.data)
    return hasher.hexdigest()


_MANY_MADE = 10_000
"""New objects, the search of which would take longer than counting those that a program has frozen."""


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pauses Python's search for reference cycles: making ten thousand entries, which form none, takes a third less."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            # Counting what a program has frozen goes through all of it; to search a few new objects takes less.
            if gc.get_count()[0] > _MANY_MADE and not gc.get_freeze_count():
                # What was made counts as old now; otherwise all of it would be searched at once.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
