"""The classic file of reprod_log 1.0.1: `.npy` around a pickled dict of arrays. Plain `.npy` arrays open as well."""

from __future__ import annotations

import io
import mmap
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from reprod_log.errors import RecordingError, UnreadableFile, UsageError
from reprod_log.recording.entry import Array, Entry, exact_array, is_masked, is_shape, nothing, real_text
from reprod_log.recording.files import first_bytes, is_file, is_remote, mapped, opened, read_range, replacing
from reprod_log.recording.pickles import read_pickle
from reprod_log.recording.recording import Recording, entry_of

TITLE = "classic .npy"
SUFFIXES = (".npy",)

MAGIC = b"\x93NUMPY"
_HARMLESS_BYTES = 1 << 26
_MOST_GROWTH = 16
"""Lists and texts in a file may become arrays of 64 MB in all, or of sixteen times the file's size."""
MAP_FROM = 1 << 26
"""Files from this size on are mapped; smaller ones are read, because a mapped file must not be rewritten in place."""

_HEADER_ROOM = 1 << 16
"""More than any header that numpy reads."""
_MOST_KEY_BITS = 1024
"""A longer number takes long to print, and Python refuses to from some length on."""

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]


def recognises(path: Path) -> bool:
    if not is_file(path):
        return False
    return path.suffix == ".npy" or first_bytes(path, len(MAGIC)) == MAGIC


def open_recording(path: Path, *, trust: bool = False) -> Recording:
    content = read_content(path, trust=trust)
    if isinstance(content, np.ndarray):
        return Recording((_while_whole(entry_of("array", content), path),), source=str(path))
    if not isinstance(content, dict):
        raise UnreadableFile(f"{path} holds a {type(content).__name__}, not the dict that ReprodLogger.save writes")
    room = max(_HARMLESS_BYTES, _MOST_GROWTH * path.stat().st_size)
    entries = []
    for key, value in flatten(content, path):
        array = as_array(value, where=f"{path}: {key!r}", most=room)
        if array is not value:
            room -= array.nbytes
        entries.append(_while_whole(entry_of(key, array), path))
    return Recording(tuple(entries), source=str(path))


def _while_whole(entry: Entry, path: Path) -> Entry:
    """The entry; of a mapped file it is read only as long as the file is whole.

    Looking at pages of a file that became shorter would end the process.
    """
    array = entry.array()
    whole = the_mapping(array)
    if whole is None:
        return entry

    def read() -> Array:
        if whole.size() < len(whole):
            raise UnreadableFile(f"{path} became shorter while it was being read: {str(entry.key)!r} may be cut")
        return array

    return replace(entry, read=read)


def the_mapping(array: Array) -> mmap.mmap | None:
    """The mapping of a file that an array is a view of, if it is one."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    whole = base.obj if isinstance(base, memoryview) else base
    return whole if isinstance(whole, mmap.mmap) else None


def save_recording(recording: Recording, path: Path) -> Path:
    return write_dict({str(entry.key): classic_array(entry.array()) for entry in recording.entries}, path)


def read_content(path: Path, *, trust: bool = False) -> Any:
    """What the file holds: the dict of a classic log, or a plain array. Arrays are read-only views of the file."""
    if trust:
        return _read_trusting(path)
    buffer = _buffer(path)
    start = io.BytesIO(buffer[:_HEADER_ROOM])
    header = read_header(start, where=str(path))
    data = buffer[start.tell() :]
    if header[2].hasobject:
        content = read_pickle(data, where=str(path))
        return content.item() if isinstance(content, np.ndarray) and content.shape == () else content
    return array_from(data, header, where=str(path))


def array_from(data: bytes | memoryview, header: Header, *, where: str) -> Array:
    """The array that a header describes, over its data."""
    shape, fortran, dtype = header
    needed = prod(shape) * dtype.itemsize
    if len(data) != needed:
        raise UnreadableFile(
            f"{where} is not whole: {dtype} {list(shape)} needs {needed} bytes of data, there are {len(data)}"
        )
    if needed == 0:
        return nothing(shape, dtype, where=where)
    return real_text(np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C"), where=where)


def write_dict(content: Mapping[Any, Any], path: Path) -> Path:
    """Write the dict as reprod_log 1.0.1 does; the old file survives any failure."""
    if path.name in ("", ".."):
        raise UsageError(f"cannot save to {str(path)!r}, which is a folder: give a file in it, e.g. forward_ref.npy")
    path = path if path.name.endswith(".npy") else path.with_name(path.name + ".npy")
    with replacing(path) as file:
        np.save(file, np.array(content, dtype=object), allow_pickle=True)
    return path


def classic_array(array: Array) -> Array:
    """The array in a dtype that every numpy knows, for readers without ml_dtypes: bfloat16 and float8 widen exactly."""
    if array.dtype.isbuiltin != 2:  # 2: registered by another package, here ml_dtypes
        return array
    return array.astype(np.int8 if "int" in array.dtype.name else np.float32)


def flatten(content: Mapping[Any, Any], path: Path, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nested dict, their keys joined by '/'; a whole number is written as one."""
    for key, value in content.items():
        if not isinstance(key, (str, int, np.integer)):
            raise RecordingError(
                f"{path}: the key {key!r} is a {type(key).__name__}, not text; save it as {str(key)!r} instead"
            )
        if isinstance(key, int) and key.bit_length() > _MOST_KEY_BITS:
            raise RecordingError(f"{path}: a key is an integer of {key.bit_length()} bits; give it a name")
        if isinstance(value, dict):
            yield from flatten(value, path, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def as_array(value: Any, *, where: str, most: int) -> Array:
    """A stored value as an array of at most so many bytes: numbers, text and lists of them are arrays too."""
    if is_masked(value):
        raise UnreadableFile(f"{where}: a masked array; save its values and its mask as arrays of their own")
    if isinstance(value, np.ndarray):
        return value
    items, width = _extent(value)
    if items * width > most:
        raise UnreadableFile(
            f"{where}: a list that would become an array of {items * width} bytes; save it as an array"
        )
    try:
        array = exact_array(value)
    except ValueError as error:
        raise UnreadableFile(f"{where}: a list whose parts have different lengths is not an array") from error
    return array


def _extent(value: Any) -> tuple[int, int]:
    """How many items an array of this would have, and the bytes of the widest: numpy makes all as wide as that."""
    if isinstance(value, np.ndarray):
        return value.size, value.dtype.itemsize
    if isinstance(value, str):
        return 1, 4 * len(value)
    if isinstance(value, bytes):
        return 1, len(value)
    if not isinstance(value, (list, tuple)):
        return 1, 16
    parts = [_extent(one) for one in value]
    return sum(items for items, _ in parts), max((width for _, width in parts), default=0)


def _read_trusting(path: Path) -> Any:
    try:
        with opened(path) as file:
            content = np.load(file, allow_pickle=True)
    except Exception as error:  # a trusted pickle may raise anything at all
        raise UnreadableFile(f"cannot read {path}: {type(error).__name__}: {error}") from error
    return content.item() if content.dtype.hasobject and content.shape == () else content


def _buffer(path: Path) -> memoryview:
    if is_remote(path):
        # A classic file is one pickle from end to end, so there is no part of it to ask for.
        return memoryview(read_range(path, 0, path.stat().st_size))
    if path.stat().st_size >= MAP_FROM:
        return memoryview(mapped(path))
    return memoryview(first_bytes(path, MAP_FROM))


def read_header(file: IO[bytes], *, where: str) -> Header:
    """Shape, whether the order is Fortran's, and dtype. numpy reads it as a literal, of at most 10,000 characters."""
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    except (
        ValueError, KeyError, SyntaxError, TypeError, AttributeError, IndexError, OverflowError, RecursionError,
        MemoryError, tokenize.TokenError,
    ) as error:  # fmt: skip
        # numpy takes the text apart with Python's own tools, each of which has its own way to refuse.
        raise UnreadableFile(f"{where} is not a whole .npy file: {error}. Was it cut short?") from error
    if not is_shape(shape):
        raise UnreadableFile(f"{where} has an impossible shape")
    return shape, fortran, dtype
