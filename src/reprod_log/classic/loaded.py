"""What `load_info` gives: a dict of arrays that are the caller's own.

The large arrays of a large log stay in their file until somebody asks for them. A script that only compares two logs
then needs neither in memory: both are read piece by piece. The file is read, not mapped: one that was cut short or
written anew in the meantime is an error, where touching a mapping of it would end the process.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import ItemsView, Mapping, ValuesView
from pathlib import Path
from typing import Any, Literal

import numpy as np

from reprod_log.errors import UnreadableFile
from reprod_log.recording import Array
from reprod_log.recording.entry import is_masked
from reprod_log.recording.files import unreadable
from reprod_log.recording.npy import MAP_FROM, read_content, the_mapping

ORDINARY = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
"""What most logs hold; dtypes in the order of another machine are not among them."""

_STAYS_FROM = 1 << 16
"""Arrays from this size on stay in a mapped file; smaller ones are quicker copied than asked for."""
_AT_ONCE = 1 << 28


def load_log(path: Path, *, trust: bool) -> Any:
    """What a classic file holds, with arrays that can be written to, as 1.0.1 gave them."""
    try:
        file = _LogFile(path) if path.stat().st_size >= MAP_FROM else None
    except OSError as error:
        raise unreadable(path, error) from error
    found = _owned(read_content(path, trust=trust), file, {})
    if file is not None:
        # It was mapped by its name, which another file may have got.
        file.check(path.stat())
    return found


class _LogFile:
    """A file that is read at any place, as long as it is the one that was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._number)
        self._stamp = _stamp(os.fstat(self._number))

    def check(self, now: os.stat_result | None = None) -> None:
        """Raise if the file is not as it was when it was opened."""
        if _stamp(now or os.fstat(self._number)) != self._stamp:
            raise UnreadableFile(f"{self.path} was changed after it was loaded. Load it again")

    def read_into(self, buffer: memoryview, place: int) -> None:
        """Fill the buffer with the bytes from this place on."""
        while buffer:
            count = _read(self._number, buffer[:_AT_ONCE], place)
            if not count:
                raise UnreadableFile(f"{self.path} became shorter after it was loaded. Load it again")
            buffer, place = buffer[count:], place + count


def _read(number: int, buffer: memoryview, place: int) -> int:
    if hasattr(os, "preadv"):
        # Without the position of the file, which forked processes share.
        return os.preadv(number, [buffer], place)
    os.lseek(number, place, os.SEEK_SET)
    data = os.read(number, len(buffer))
    buffer[: len(data)] = data
    return len(data)


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Stored:
    """An array of a file, which is read when it is asked for; whoever asks gets the same one."""

    def __init__(self, file: _LogFile, place: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.file, self.shape, self.dtype = file, shape, dtype
        self.size = int(np.prod(shape))
        self._place = place
        self._array: Array | None = None

    def array(self) -> Array:
        if self._array is None:
            memory = bytearray(self.size * self.dtype.itemsize)
            self.file.read_into(memoryview(memory), self._place)
            self.file.check()
            self._array = np.ndarray(self.shape, self.dtype, memory)
        return self._array

    def piece(self, start: int, room: Array) -> Array:
        """As many elements as there is room for, from this one on, in the order in which they lie in the file."""
        if self._array is not None:
            return self._array.reshape(-1)[start : start + len(room)]
        self.file.read_into(room.data.cast("B"), self._place + start * self.dtype.itemsize)
        return room


class Log(dict[Any, Any]):
    """A dict, some of whose arrays are still in their file: whoever looks at one gets it as it was saved."""

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, Stored):
            value = value.array()
            self[key] = value
        return value

    def stored(self, key: Any) -> Any:
        """The value, without reading it."""
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return ValuesView(self)

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]
        return ItemsView(self)

    def __iter__(self) -> Any:
        # A dict with an iteration of its own is copied item by item: `dict(log)` has arrays, too.
        return super().__iter__()

    def pop(self, key: Any, *default: Any) -> Any:
        if key in self:
            self[key]
        return super().pop(key, *default)

    def popitem(self) -> tuple[Any, Any]:
        key = next(reversed(self), None)
        return (key, self.pop(key)) if len(self) else super().popitem()

    def setdefault(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else super().setdefault(key, default)

    def copy(self) -> dict[Any, Any]:
        return dict(self.items())

    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    def __ne__(self, other: object) -> bool:
        return self.copy() != other

    __hash__ = None

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __repr__(self) -> str:
        return repr(self.copy())

    def __reduce__(self) -> Any:
        # Saved, sent or copied it is a plain dict.
        return dict, (self.copy(),)


def stored(data: Mapping[Any, Any], key: Any) -> Any:
    """The value under a key; what is still in a file stays there."""
    return data.stored(key) if isinstance(data, Log) else data[key]


def _owned(value: Any, file: _LogFile | None, made: dict[int, Any]) -> Any:
    """The same with arrays of the caller's own; one that stands twice is one."""
    if isinstance(value, dict):
        found = {key: _stays(one, file, made) or _owned(one, file, made) for key, one in value.items()}
        return Log(found) if any(isinstance(one, Stored) for one in found.values()) else found
    if isinstance(value, (list, tuple)):
        return type(value)(_owned(one, file, made) for one in value)
    if not isinstance(value, np.ndarray):
        return value
    if id(value) not in made:
        made[id(value)] = _copied(value)
    found = made[id(value)]
    return found.array() if isinstance(found, Stored) else found


def _stays(array: Any, file: _LogFile | None, made: dict[int, Any]) -> Stored | None:
    """The array as one of its file, if it is a large plain one of a mapped file."""
    if id(array) not in made and file is not None and type(array) is np.ndarray:
        mapping = the_mapping(array)
        plain = array.dtype in ORDINARY and array.flags.c_contiguous and array.nbytes >= _STAYS_FROM
        if mapping is not None and plain:
            start = np.frombuffer(mapping, np.uint8).ctypes.data
            made[id(array)] = Stored(file, array.ctypes.data - start, array.shape, array.dtype)
    found = made.get(id(array))
    return found if isinstance(found, Stored) else None


def _copied(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy whose memory is a bytearray, as that of an array from a pickle is bytes.

    numpy asks for huge pages when it allocates; where those are dear (virtual machines), copying takes fifteen times
    as long.
    """
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    if is_masked(array) or array.dtype.char in "gG":
        # A mask is more than bytes; a longdouble wants memory that a bytearray does not have.
        return array.copy()
    if array.flags.c_contiguous and array.dtype.kind in "biufc" and array.size:
        return np.ndarray(array.shape, array.dtype, bytearray(array.data))
    order: Literal["C", "F"] = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    if array.dtype.hasobject or not array.size or not (array.flags.c_contiguous or array.flags.f_contiguous):
        return np.array(array)
    return np.frombuffer(bytearray(array.ravel(order).view(np.uint8).data), array.dtype).reshape(
        array.shape, order=order
    )
