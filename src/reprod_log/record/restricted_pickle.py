"""Reading the pickles inside classic `.npy` files without running anything they ask for.

The pickle machine of the standard library is kept, but every global it asks for is answered by a stand-in of our own,
so the file can only describe numpy arrays, numbers, text, lists, tuples and dicts. Large byte strings are not copied:
they stay views of the mapped file, so that opening a file of many gigabytes costs no memory.
"""

from __future__ import annotations

import collections
import pickle
import struct
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from reprod_log.errors import UnreadableFile, UntrustedFile
from reprod_log.record.entry import Array

_COPY_BELOW = 4096
"""Byte strings shorter than this are copied out; longer ones stay views of the file."""
_DEEPEST = 100
"""Nesting that no real log comes near; beyond it a file is hostile or broken."""


def read_pickle(buffer: memoryview, *, where: str) -> Any:
    """The object pickled in `buffer`; numpy arrays in it are read-only views of `buffer`."""
    try:
        content = _StandInUnpickler(_BufferFile(buffer), where).load()
        return _Finisher(where, most=max(1000, len(buffer))).finish(content)
    except (UntrustedFile, UnreadableFile):
        raise
    except (
        pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, KeyError, IndexError,
        struct.error, OverflowError, RecursionError, UnicodeError, AssertionError, NotImplementedError,
    ) as error:  # fmt: skip
        # The machine meets a broken stream with whichever of these comes first.
        raise UnreadableFile(f"{where}: the data is cut short or damaged ({type(error).__name__}: {error})") from error


class _BufferFile:
    """A file over a buffer that hands out large reads as views."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._position = 0

    def read(self, size: int = -1) -> bytes | memoryview:
        end = len(self._buffer) if size < 0 else self._position + size
        part = self._buffer[self._position : end]
        self._position += len(part)
        return bytes(part) if len(part) < _COPY_BELOW else part

    def readline(self) -> bytes:
        # Only text opcodes of protocol 0 use lines; none in an honest file is longer than this.
        window = bytes(self._buffer[self._position : self._position + 65536])
        end = window.find(b"\n") + 1
        line = window[:end] if end else window
        self._position += len(line)
        return line

    def readinto(self, target: bytearray) -> int:
        part = self._buffer[self._position : self._position + len(target)]
        target[: len(part)] = part
        self._position += len(part)
        return len(part)


class _StandIn:
    """What a file gets when it asks for a global: callable, unchangeable, and unable to do anything else."""

    __slots__ = ("call", "name")
    name: str
    call: Callable[..., Any]

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "call", call)

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)

    def __setattr__(self, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"the file tries to change {self.name}")

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError(f"the file tries to change {self.name}")


class _Dtype:
    """numpy.dtype('f4', False, True) followed by its state, whose second item is the byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: object, *_: object) -> None:
        self.code = str(code)
        self.order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if len(state) > 4 and (state[2] is not None or state[3] is not None):
            raise pickle.UnpicklingError("structured dtypes are not supported; record each field by itself")
        self.order = str(state[1])

    def real(self) -> np.dtype[Any]:
        dtype = np.dtype(self.code)
        return dtype.newbyteorder("<" if self.order == "<" else ">") if self.order in "<>" else dtype


class _PickledArray:
    """numpy's `_reconstruct` result, waiting for its state (version, shape, dtype, fortran, data)."""

    __slots__ = ("data", "dtype", "fortran", "shape")

    def __init__(self, *_: object) -> None:
        self.shape: tuple[int, ...] = (0,)
        self.dtype: _Dtype = _Dtype("u1")
        self.fortran = False
        self.data: Any = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *_, shape, dtype, fortran, data = state
        self.shape = tuple(shape)
        if not isinstance(dtype, _Dtype) or not all(type(d) is int and d >= 0 for d in self.shape):
            raise pickle.UnpicklingError("an array has no dtype or an impossible shape")
        self.dtype, self.fortran, self.data = dtype, bool(fortran), data


def _from_buffer(data: Any, dtype: _Dtype, shape: Any, order: str = "C") -> _PickledArray:
    array = _PickledArray()
    array.__setstate__((tuple(shape), dtype, order == "F", data))
    return array


def _scalar(dtype: _Dtype, data: Any = b"") -> _PickledArray:
    array = _PickledArray()
    array.__setstate__(((), dtype, False, data if isinstance(data, (bytes, str)) else [data]))
    return array


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    # Python 2 and protocol 2 write bytes as text to be encoded back.
    return str(text).encode(str(encoding) if encoding in ("latin1", "utf-8", "ascii") else "latin1")


def _tuple(items: Any = ()) -> tuple[Any, ...]:
    # paddle pickles a tensor inside another value as a call of `tuple` with its name and array.
    if not isinstance(items, (tuple, list)):
        raise pickle.UnpicklingError("a tuple is made of something that is not a sequence")
    return tuple(items)


_NUMPY_CORE = ("numpy.core.", "numpy._core.")
_STAND_INS: Mapping[tuple[str, str], Callable[..., Any]] = {
    **{(core + "multiarray", "_reconstruct"): _PickledArray for core in _NUMPY_CORE},
    **{(core + "multiarray", "scalar"): _scalar for core in _NUMPY_CORE},
    **{(core + "numeric", "_frombuffer"): _from_buffer for core in _NUMPY_CORE},
    ("numpy", "ndarray"): _PickledArray,
    ("numpy", "dtype"): _Dtype,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("_codecs", "encode"): _encoded,
    ("builtins", "tuple"): _tuple,
    ("__builtin__", "tuple"): _tuple,
}


# The machine written in Python, because the one in C copies what it reads.
class _StandInUnpickler(pickle._Unpickler):
    def __init__(self, file: _BufferFile, where: str) -> None:
        super().__init__(file, encoding="latin1")  # type: ignore[arg-type]  # views serve as bytes
        self._where = where

    def find_class(self, module: str, name: str) -> _StandIn:
        call = _STAND_INS.get((module, name))
        if call is None:
            raise UntrustedFile(
                f"{self._where} asks Python for '{module}.{name}' while being read, which could run code of its "
                "author's choice. It was not run. If you made this file yourself, allow it with trust=True "
                "(command line: --trust)."
            )
        return _StandIn(f"{module}.{name}", call)

    def persistent_load(self, identity: object) -> Any:
        raise pickle.UnpicklingError(f"the file refers to something outside of it: {identity!r}")


class _Finisher:
    """Turns every stand-in into what it stands for."""

    def __init__(self, where: str, most: int) -> None:
        self._where = where
        # Shared references could unfold a few bytes into billions of items; an honest file has fewer items than bytes.
        self._left = most

    def finish(self, value: Any, depth: int = 0) -> Any:
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            raise UnreadableFile(f"{self._where}: nested deeper than {_DEEPEST} levels, or more items than bytes")
        if isinstance(value, _PickledArray):
            return self._array(value, depth)
        if isinstance(value, dict):
            return {self._key(k): self.finish(v, depth + 1) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.finish(item, depth + 1) for item in value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            return value
        raise UnreadableFile(f"{self._where}: holds a {type(value).__name__}, which is not a number, text or array")

    def _key(self, key: Any) -> Any:
        if key is None or isinstance(key, (bool, int, float, str, bytes)):
            return key
        raise UnreadableFile(f"{self._where}: a key is a {type(key).__name__}, not text")

    def _array(self, pickled: _PickledArray, depth: int) -> Array:
        dtype = pickled.dtype.real()
        count = prod(pickled.shape)
        order: Any = "F" if pickled.fortran else "C"
        what = f"{self._where}: an array of {dtype} {list(pickled.shape)}"
        if dtype.hasobject:
            items = pickled.data
            if not isinstance(items, (list, tuple)) or len(items) != count:
                raise UnreadableFile(f"{what} does not have its {count} items")
            array: Array = np.empty(count, object)
            for position, item in enumerate(items):
                array[position] = self.finish(item, depth + 1)
            return array.reshape(pickled.shape, order=order)
        data = pickled.data.encode("latin1") if isinstance(pickled.data, str) else pickled.data
        if not isinstance(data, (bytes, bytearray, memoryview)) or len(data) != count * dtype.itemsize:
            raise UnreadableFile(f"{what} does not have its {count * dtype.itemsize} bytes")
        if count == 0 or dtype.itemsize == 0:
            return np.zeros(pickled.shape, dtype) if count == 0 else np.full(pickled.shape, "", dtype)
        return np.frombuffer(data, dtype).reshape(pickled.shape, order=order)
