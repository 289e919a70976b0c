"""The pickle machine of the standard library, made safe to run on a stranger's stream.

It can make only numbers, text, bytes, lists, tuples, dicts, and what the `answers` to its globals return. Instructions
that would allocate what the stream merely claims, or whose work can grow faster than the stream (hashing a tuple of
tuples doubles with every level), are replaced or refused. Large byte strings stay views of the buffer.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any, ClassVar

_COPY_BELOW = 4096
"""Byte strings shorter than this are copied out; longer ones stay views of the file."""
_MEMOIZE, _BINGET, _BININT1 = pickle.MEMOIZE[0], pickle.BINGET[0], pickle.BININT1[0]
_MOST_ARGUMENTS = 8
"""numpy's own calls have at most five."""


class BufferFile:
    """A file over a buffer that hands out large reads as views."""

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


def plain_key(key: Any) -> Any:
    """`key` if it hashes in one step, as every honest key does."""
    if key is None or isinstance(key, (bool, int, float, str, bytes)):
        return key
    raise pickle.UnpicklingError(f"a key is a {type(key).__name__}, not text")


# The machine written in Python, because the one in C copies what it reads.
class Machine(pickle._Unpickler):
    """Runs a stream; `find` answers every global that it asks for."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)

    # What the standard machine keeps; its stubs do not say so.
    stack: list[Any]
    append: Callable[[Any], None]
    read: Callable[[int], bytes | memoryview]
    readline: Callable[[], bytes]
    pop_mark: Callable[[], list[Any]]
    memo: dict[int, Any]

    def __init__(self, buffer: memoryview, find: Callable[[str, str], Any]) -> None:
        self._file = BufferFile(buffer)
        super().__init__(self._file, encoding="latin1")  # type: ignore[arg-type]  # views serve as bytes
        self._find = find
        self.metastack: list[list[Any]] = []
        self.stack = []
        self.append = self.stack.append
        self.read, self.readline = self._file.read, self._file.readline

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
                    memo[len(memo)] = self.stack[-1]
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
                raise EOFError("the data ends before it says so") from error
            raise

    def find_class(self, module: str, name: str) -> Any:
        return self._find(module, name)

    def persistent_load(self, identity: object) -> Any:
        # Its text could be longer than memory: a list that holds itself twice, sixty times over.
        raise pickle.UnpicklingError(f"the file refers to something outside of it, by a {type(identity).__name__}")

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
            target[plain_key(key)] = value

    def _refused(self) -> None:
        raise pickle.UnpicklingError("sets and objects made without a call do not belong into a log")


def _replace(method: Callable[[Any], None], *codes: bytes) -> None:
    for code in codes:
        Machine.dispatch[code[0]] = method


_replace(Machine._frame, pickle.FRAME)
_replace(Machine._bytearray, pickle.BYTEARRAY8)
_replace(Machine._reduce, pickle.REDUCE)
_replace(Machine._set_item, pickle.SETITEM)
_replace(Machine._set_items, pickle.SETITEMS)
_replace(Machine._dict, pickle.DICT)
_replace(
    Machine._refused, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.INST, pickle.OBJ, pickle.NEWOBJ,
    pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER,
)  # fmt: skip
