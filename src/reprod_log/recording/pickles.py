"""Reading the pickles inside classic `.npy` files without running anything they ask for.

Every global that a stream asks for is answered by a stand-in of our own, so the file can only describe numpy arrays,
numbers, text, lists, tuples and dicts. Instructions that would allocate what the stream merely claims, or whose work
can grow faster than the stream (hashing a tuple of tuples doubles with every level), are replaced or refused. Large
byte strings are not copied: they stay views of the mapped file, so that opening many gigabytes costs no memory.
"""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

import numpy as np

from reprod_log.errors import UnreadableFile, UntrustedFile
from reprod_log.recording.entry import Array, is_shape, real_text

_DEEPEST = 100
"""Nesting that no real log comes near; beyond it a file is hostile or broken."""
_MOST_BITS = 1024
"""Longer integers cost more to print than to store, and no log has one."""
_DTYPE_CODE = re.compile(r"[A-Za-z?][0-9]{0,10}")
"""What numpy calls a dtype in a pickle: f8, U12, O8 …"""
_DATE_UNITS = frozenset({"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"})

_COPY_BELOW = 4096
"""Byte strings shorter than this are copied out; longer ones stay views of the file."""
_MEMOIZE, _BINGET, _BININT1 = pickle.MEMOIZE[0], pickle.BINGET[0], pickle.BININT1[0]
_MOST_ARGUMENTS = 8
"""numpy's own calls have at most five."""
_FEW_CONTAINERS = 200_000
_BYTES_PER_CONTAINER = 8
"""One byte of a stream can open a list of 72 bytes. An array of a log takes three containers in some fifty bytes."""


def read_pickle(buffer: memoryview, *, where: str) -> Any:
    """The object pickled in `buffer`; numpy arrays in it are read-only views of `buffer`."""
    try:
        content = _Machine(buffer, _stand_in(where)).load()
        return _Finisher(where, most=max(1000, 4 * len(buffer))).finish(content)
    except (UntrustedFile, UnreadableFile):
        raise
    except (
        pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, KeyError, IndexError,
        struct.error, OverflowError, RecursionError, UnicodeError, AssertionError, NotImplementedError,
    ) as error:  # fmt: skip
        # The machine meets a broken stream with whichever of these comes first.
        raise UnreadableFile(f"{where}: the data is cut short or damaged ({type(error).__name__}: {error})") from error


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

    __slots__ = ("code", "order", "unit")

    def __init__(self, code: object = "", *_: object) -> None:
        if not isinstance(code, str) or not _DTYPE_CODE.fullmatch(code):
            raise pickle.UnpicklingError("a dtype that numpy does not know by one letter and a size")
        self.code = code
        self.order = "="
        self.unit = ""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "=", "|"):
            raise pickle.UnpicklingError("a dtype without its byte order")
        if len(state) > 4 and (state[2] is not None or state[3] is not None):
            raise pickle.UnpicklingError("structured dtypes are not supported; record each field by itself")
        self.order = state[1]
        if self.code in ("M8", "m8"):
            self.unit = _unit(state)

    def real(self) -> np.dtype[Any]:
        return _dtype(self.code + self.unit, self.order)


@lru_cache(maxsize=64)
def _dtype(code: str, order: str) -> np.dtype[Any]:
    dtype = np.dtype(code)
    return dtype.newbyteorder("<" if order == "<" else ">") if order in "<>" else dtype


def _unit(state: tuple[Any, ...]) -> str:
    """What a date counts, e.g. `[D]` or `[15m]`: the last item of its dtype's state is (…, (unit, how many, 1, 1))."""
    try:
        _, (unit, count, _, _) = state[8]
        text = unit.decode("ascii") if isinstance(unit, bytes) else ""
        if text in _DATE_UNITS and isinstance(count, int) and 0 < count < 1 << 31:
            return f"[{count}{text}]"
    except (IndexError, TypeError, ValueError):
        pass
    raise pickle.UnpicklingError("a date without the unit that it counts")


_UNKNOWN = _Dtype("u1")
"""Of an array whose state has not come yet. No stream gets hold of it, so that all can share it."""


class _PickledArray:
    """numpy's `_reconstruct` result, waiting for its state (version, shape, dtype, fortran, data)."""

    __slots__ = ("data", "dtype", "fortran", "shape")

    def __init__(self, *_: object) -> None:
        self.shape: tuple[int, ...] = (0,)
        self.dtype: _Dtype = _UNKNOWN
        self.fortran = False
        self.data: Any = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if not isinstance(state, tuple) or not 4 <= len(state) <= 5:
            raise pickle.UnpicklingError("an array without shape, dtype, order and data")
        *_, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple) or not is_shape(shape):
            raise pickle.UnpicklingError("an array has no dtype or an impossible shape")
        self.shape, self.dtype, self.fortran, self.data = shape, dtype, fortran in (True, 1), data

    def number(self) -> Any:
        """The number that this is, as a key must be."""
        dtype = self.dtype.real()
        if self.shape != () or dtype.kind not in "biuf" or not isinstance(self.data, (bytes, memoryview)):
            raise pickle.UnpicklingError("a key is an array")
        return np.frombuffer(self.data, dtype, 1)[0]


class _PickledMask(_PickledArray):
    """numpy.ma's `_mareconstruct` result, whose state has the mask and the fill value behind the data."""

    __slots__ = ("mask",)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if not isinstance(state, tuple) or len(state) != 7:
            raise pickle.UnpicklingError("a masked array without data and mask")
        super().__setstate__(state[:5])
        self.mask = _PickledArray()
        self.mask.__setstate__((state[1], _Dtype("b1"), state[3], state[5]))


def _from_buffer(data: Any, dtype: _Dtype, shape: Any, order: str = "C") -> _PickledArray:
    array = _PickledArray()
    array.__setstate__((shape, dtype, order == "F", data))
    return array


def _scalar(dtype: _Dtype, data: Any = b"") -> _PickledArray:
    array = _PickledArray()
    whole = isinstance(data, (bytes, memoryview, str, _Encoded))
    array.__setstate__(((), dtype, False, data if whole else [data]))
    return array


class _Encoded:
    """Python 2 and protocol 2 write bytes as text to be encoded back. Done when it is used: text may be shared."""

    __slots__ = ("encoding", "text")

    def __init__(self, text: object = "", encoding: object = "latin1") -> None:
        if not isinstance(text, str) or encoding not in ("latin1", "utf-8", "ascii"):
            raise pickle.UnpicklingError("bytes that are not written as text")
        self.text, self.encoding = text, str(encoding)


def _tuple(items: Any = ()) -> tuple[Any, ...]:
    # paddle pickles a tensor inside another value as a call of `tuple` with its name and array.
    if not isinstance(items, (tuple, list)) or len(items) > 2:
        raise pickle.UnpicklingError("a tuple is made of something that is not a name and an array")
    return tuple(items)


class _Pairs:
    """An OrderedDict of Python 2, which gives its items along."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[Any]) -> None:
        self.pairs = pairs


def _ordered_dict(pairs: Any = ()) -> dict[Any, Any] | _Pairs:
    if isinstance(pairs, list) and pairs:
        return _Pairs(pairs)
    if pairs not in ((), [], {}):
        raise pickle.UnpicklingError("an OrderedDict is made of something that is not a list of pairs")
    return {}


_NUMPY_CORE = ("numpy.core.", "numpy._core.")
_STAND_INS: Mapping[tuple[str, str], Callable[..., Any]] = {
    **{(core + "multiarray", "_reconstruct"): _PickledArray for core in _NUMPY_CORE},
    **{(core + "multiarray", "scalar"): _scalar for core in _NUMPY_CORE},
    **{(core + "numeric", "_frombuffer"): _from_buffer for core in _NUMPY_CORE},
    ("numpy.ma.core", "_mareconstruct"): _PickledMask,
    **dict.fromkeys((("numpy", name) for name in ("ndarray", "memmap", "matrix")), _PickledArray),
    **dict.fromkeys((("numpy.core.memmap", "memmap"), ("numpy.matrixlib.defmatrix", "matrix")), _PickledArray),
    **dict.fromkeys((("numpy.ma", "MaskedArray"), ("numpy.ma.core", "MaskedArray")), _PickledArray),
    ("numpy", "dtype"): _Dtype,
    ("collections", "OrderedDict"): _ordered_dict,
    ("_codecs", "encode"): _Encoded,
    ("builtins", "tuple"): _tuple,
    ("__builtin__", "tuple"): _tuple,
}


def _stand_in(where: str) -> Callable[[str, str], _StandIn]:
    def find(module: str, name: str) -> _StandIn:
        call = _STAND_INS.get((module, name))
        if call is None:
            raise UntrustedFile(
                f"{where} asks Python for '{module}.{name}' while being read, which could run code of its "
                "author's choice. It was not run. If you made this file yourself, allow it with trust=True "
                "(command line: --trust)."
            )
        return _StandIn(f"{module}.{name}", call)

    return find


class _Finisher:
    """Turns every stand-in into what it stands for."""

    def __init__(self, where: str, most: int) -> None:
        self._where = where
        # Shared references could unfold a few bytes into billions of items. An honest file has fewer items than bytes,
        # and copies of what it repeats stay below a few times its size.
        self._left = most
        self._arrays: dict[int, Array] = {}

    def finish(self, value: Any, depth: int = 0) -> Any:
        self._spend(1)
        if depth > _DEEPEST:
            raise UnreadableFile(f"{self._where}: nested deeper than {_DEEPEST} levels")
        if isinstance(value, _PickledArray):
            # An array that stands in several places stays one.
            if id(value) not in self._arrays:
                self._arrays[id(value)] = self._array(value, depth)
            return self._arrays[id(value)]
        if isinstance(value, dict):
            return {_plain_key(k): self.finish(v, depth + 1) for k, v in value.items()}
        if isinstance(value, _Pairs):
            return {_plain_key(k): self.finish(v, depth + 1) for k, v in value.pairs}
        if isinstance(value, (list, tuple)):
            return type(value)(self.finish(item, depth + 1) for item in value)
        if isinstance(value, (bytes, memoryview, _Encoded)):
            if isinstance(value, memoryview):
                self._spend(len(value))
            return bytes(self._bytes(value))
        if type(value) is int and value.bit_length() > _MOST_BITS:
            raise UnreadableFile(f"{self._where}: holds an integer of {value.bit_length()} bits")
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            return value
        raise UnreadableFile(f"{self._where}: holds a {type(value).__name__}, which is not a number, text or array")

    def _spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise UnreadableFile(f"{self._where}: unfolds to more items than bytes, because parts of it are repeated")

    def _bytes(self, data: bytes | memoryview | str | _Encoded) -> bytes | memoryview:
        """The bytes of an array; those that have to be copied are paid for."""
        if isinstance(data, _Encoded):
            self._spend(len(data.text))
            return data.text.encode(data.encoding)
        if isinstance(data, str):
            self._spend(len(data))
            return data.encode("latin1")
        return data

    def _array(self, pickled: _PickledArray, depth: int) -> Array:
        if isinstance(pickled, _PickledMask):
            mask = self._values(pickled.mask, depth)
            return np.ma.MaskedArray(self._values(pickled, depth), mask)
        return self._values(pickled, depth)

    def _values(self, pickled: _PickledArray, depth: int) -> Array:
        dtype = pickled.dtype.real()
        count = prod(pickled.shape)
        order: Any = "F" if pickled.fortran else "C"
        if dtype.hasobject:
            items = pickled.data
            if not isinstance(items, (list, tuple)) or len(items) != count:
                raise self._lacking(pickled, f"{count} items")
            array: Array = np.empty(count, object)
            for position, item in enumerate(items):
                array[position] = self.finish(item, depth + 1)
            return array.reshape(pickled.shape, order=order)
        if not isinstance(pickled.data, (bytes, memoryview, str, _Encoded)):
            raise self._lacking(pickled, f"{count * dtype.itemsize} bytes")
        data = self._bytes(pickled.data)
        if len(data) != count * dtype.itemsize:
            raise self._lacking(pickled, f"{count * dtype.itemsize} bytes")
        if dtype.itemsize == 0:
            # numpy gives texts of no length one place each.
            self._spend(count)
        if not data:
            return np.zeros(pickled.shape, dtype)
        return real_text(np.frombuffer(data, dtype).reshape(pickled.shape, order=order), where=self._where)

    def _lacking(self, pickled: _PickledArray, what: str) -> UnreadableFile:
        kind = f"an array of {pickled.dtype.real()} {list(pickled.shape)}"
        return UnreadableFile(f"{self._where}: {kind} does not have its {what}")


class _BufferFile:
    """A file over a buffer whose large reads are views."""

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.position = 0

    def read(self, size: int) -> bytes | memoryview:
        part = self.buffer[self.position : self.position + size]
        if len(part) != size:
            raise EOFError(f"{size} bytes were announced, {len(part)} are left")
        self.position += size
        return bytes(part) if size < _COPY_BELOW else part

    def readline(self) -> bytes:
        # Only text opcodes of protocol 0 use lines; none in an honest file is longer than this.
        window = bytes(self.buffer[self.position : self.position + 65536])
        end = window.find(b"\n") + 1
        line = window[:end] if end else window
        self.position += len(line)
        return line


def _plain_key(key: Any) -> Any:
    """`key` if it hashes in one step, as every honest key does."""
    if type(key) is int and key.bit_length() > _MOST_BITS:
        raise pickle.UnpicklingError(f"a key is an integer of {key.bit_length()} bits")
    if isinstance(key, _PickledArray):
        key = key.number()
    if is_classic_key(key) or isinstance(key, bytes):
        return key
    if isinstance(key, tuple) and len(key) <= _MOST_ARGUMENTS:
        return tuple(_plain_key(item) if not isinstance(item, tuple) else _no_key(item) for item in key)
    return _no_key(key)


def is_classic_key(key: Any) -> bool:
    """Whether a log of 1.0.1 may have this key and this reader takes it: text, a number, None, or a tuple of these."""
    if isinstance(key, tuple):
        return len(key) <= _MOST_ARGUMENTS and not any(isinstance(one, tuple) or not is_classic_key(one) for one in key)
    return key is None or isinstance(key, (str, int, float, np.number, np.bool_))


def _no_key(key: Any) -> Any:
    raise pickle.UnpicklingError(f"a key is a {type(key).__name__}, not text")


# The machine written in Python, because the one in C copies what it reads.
class _Machine(pickle._Unpickler):
    """Runs a stream; `find` answers every global that it asks for."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)

    # What the standard machine keeps; its stubs do not say so.
    stack: list[Any]
    append: Callable[[Any], None]
    read: Callable[[int], bytes | memoryview]
    readline: Callable[[], bytes]
    pop_mark: Callable[[], list[Any]]
    memo: list[Any]  # a dict in the standard machine, of a hundred bytes for each

    def __init__(self, buffer: memoryview, find: Callable[[str, str], Any]) -> None:
        self._file = _BufferFile(buffer)
        super().__init__(self._file, encoding="latin1")  # type: ignore[arg-type]  # views serve as bytes
        self._find = find
        self.metastack: list[list[Any]] = []
        self.stack = []
        self.append = self.stack.append
        self.read, self.readline = self._file.read, self._file.readline
        self.memo = []
        self._containers_left = max(_FEW_CONTAINERS, len(buffer) // _BYTES_PER_CONTAINER)

    def load(self) -> Any:
        """What the stream describes. The buffer is read where it lies; the standard machine copies it frame by frame,
        and asks for every instruction in three calls."""
        file, memo, instructions = self._file, self.memo, self.dispatch
        buffer = file.buffer
        try:
            while True:
                position = file.position
                code = buffer[position]
                file.position = position + 1
                # What most of a log consists of is done here; a call for each would take as long as the rest together.
                if code == _MEMOIZE:
                    memo.append(self.stack[-1])
                elif code == _BINGET:
                    self.append(memo[buffer[position + 1]])
                    file.position = position + 2
                elif code == _BININT1:
                    self.append(buffer[position + 1])
                    file.position = position + 2
                else:
                    instructions[code](self)
        except pickle._Stop as stop:  # type: ignore[attr-defined]  # how the standard machine ends
            return stop.value
        except IndexError as error:
            if file.position >= len(buffer):
                raise EOFError("the data ends too early") from error
            raise

    def find_class(self, module: str, name: str) -> Any:
        return self._find(module, name)

    def persistent_load(self, identity: object) -> Any:
        # Its text could be longer than memory: a list that holds itself twice, sixty times over.
        raise pickle.UnpicklingError(f"the file refers to something outside of it, by a {type(identity).__name__}")

    def _spend(self, containers: int = 1) -> None:
        self._containers_left -= containers
        if self._containers_left < 0:
            raise pickle.UnpicklingError("far more lists and tuples than a log of this size has")

    def _mark(self) -> None:
        self._spend()
        self.metastack.append(self.stack)
        self.stack = []
        self.append = self.stack.append

    def _empty_list(self) -> None:
        self._spend()
        self.append([])

    def _empty_dict(self) -> None:
        self._spend()
        self.append({})

    def _tuple_of(self, count: int) -> None:
        self._spend()
        if len(self.stack) < count:
            raise pickle.UnpicklingError("a tuple of more than there is")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def _put(self, place: int) -> None:
        memo = self.memo
        if place >= len(memo):
            # Numbers come one after the other; those that are skipped cost room, too.
            self._spend(place - len(memo))
            memo.extend([None] * (place - len(memo) + 1))
        memo[place] = self.stack[-1]

    def _numbered_line(self) -> int:
        number = int(self.readline()[:-1])
        if number < 0:
            raise pickle.UnpicklingError("a negative number of a remembered value")
        return number

    def _frame(self) -> None:
        # A frame only says how much may be read ahead.
        self.read(8)

    def _bytearray(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        self.append(bytes(self.read(length)))

    def _reduce(self) -> None:
        arguments = self.stack.pop()
        if not isinstance(arguments, (tuple, list)) or len(arguments) > _MOST_ARGUMENTS:
            raise pickle.UnpicklingError("a call without arguments, or with too many")
        self._spend()
        self.stack[-1] = self.stack[-1](*arguments)

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def _set_items(self) -> None:
        self._fill(self.pop_mark())

    def _dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._fill(items)

    def _fill(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict:
            raise pickle.UnpicklingError(f"items are put into a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_plain_key(key)] = value

    def _refused(self) -> None:
        raise pickle.UnpicklingError("sets and objects made without a call do not belong into a log")


def _replace_instruction(method: Callable[[Any], None], *codes: bytes) -> None:
    for code in codes:
        _Machine.dispatch[code[0]] = method


_replace_instruction(_Machine._frame, pickle.FRAME)
_replace_instruction(_Machine._mark, pickle.MARK)
_replace_instruction(_Machine._empty_list, pickle.EMPTY_LIST)
_replace_instruction(_Machine._empty_dict, pickle.EMPTY_DICT)
_replace_instruction(lambda machine: machine._tuple_of(1), pickle.TUPLE1)
_replace_instruction(lambda machine: machine._tuple_of(2), pickle.TUPLE2)
_replace_instruction(lambda machine: machine._tuple_of(3), pickle.TUPLE3)
_replace_instruction(lambda machine: machine._put(machine._numbered_line()), pickle.PUT)
_replace_instruction(lambda machine: machine._put(machine.read(1)[0]), pickle.BINPUT)
_replace_instruction(lambda machine: machine._put(struct.unpack("<I", machine.read(4))[0]), pickle.LONG_BINPUT)
_replace_instruction(lambda machine: machine.append(machine.memo[machine._numbered_line()]), pickle.GET)
_replace_instruction(_Machine._bytearray, pickle.BYTEARRAY8)
_replace_instruction(_Machine._reduce, pickle.REDUCE)
_replace_instruction(_Machine._set_item, pickle.SETITEM)
_replace_instruction(_Machine._set_items, pickle.SETITEMS)
_replace_instruction(_Machine._dict, pickle.DICT)
_replace_instruction(
    _Machine._refused, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.INST, pickle.OBJ, pickle.NEWOBJ,
    pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER,
)  # fmt: skip
