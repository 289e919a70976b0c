"""A recording in one `.safetensors` file; files of others, which have only tensors, open as well.

The file is mapped instead of read: the safetensors library copies every tensor it loads (4.1 GB for two files of 2 GB);
views of a memory map cost nothing until they are read. So reading and streaming writing are done here, and tests
compare them with the library in both directions.

Layout: 8 bytes little-endian header length, that much JSON {name: {dtype, shape, data_offsets}}, then the data.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from reprod_log.errors import UnreadableFile
from reprod_log.recording.encoding import (
    SAFETENSORS_CODES,
    decoded,
    describe_recording,
    encode,
    entry_from,
    facts_from,
    file_bytes,
    read_description,
)
from reprod_log.recording.entry import Array, Entry, dtype_name, dtype_named, is_shape, nothing
from reprod_log.recording.files import (
    first_bytes,
    is_file,
    is_remote,
    location,
    mapped,
    opened,
    read_range,
    replacing,
    unreadable,
)
from reprod_log.recording.key import Key
from reprod_log.recording.recording import Recording

TITLE = "safetensors file"
SUFFIXES = (".safetensors",)

METADATA_NAME = "reprod_log"
_DTYPE_NAMES = {code: name for name, code in SAFETENSORS_CODES.items()}

MOST_HEADER_BYTES = 100_000_000
"""The safetensors library's own limit, kept so that files go both ways."""


class Slot(NamedTuple):
    """Where one tensor lies in a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True)
class TensorFile:
    """The directory of a safetensors file: what is in it and where. Holds no data and no open file."""

    path: Path
    slots: Mapping[str, Slot]
    """In the order of their data."""
    metadata: Mapping[str, str]

    def map(self) -> mmap.mmap:
        """The file, mapped for reading."""
        return mapped(self.path)

    def view(self, slot: Slot, whole: mmap.mmap | None = None) -> Array:
        """A read-only view of one of its tensors; its bytes are read when they are looked at."""
        name, kind, shape, offset, nbytes = slot
        dtype = dtype_named(kind)
        if nbytes == 0:
            return nothing(shape, dtype, where=f"{self.path}: {name!r}")
        if whole is None:
            if is_remote(self.path):
                return np.frombuffer(read_range(self.path, offset, nbytes), dtype).reshape(shape)
            whole = self.map()
        # The size of the file now: looking at pages that are no longer there would end the process.
        if offset + nbytes > min(len(whole), whole.size()):
            raise UnreadableFile(f"{self.path} became shorter while it was being read: {name!r} is no longer there")
        return np.ndarray(shape, dtype, whole, offset)


def read_directory(path: str | Path) -> TensorFile:
    """The checked directory of a safetensors file. Nothing a header claims is believed beyond the file's size."""
    path = location(path)
    try:
        size = path.stat().st_size
        with opened(path) as file:
            length_bytes = file.read(8)
            if len(length_bytes) < 8:
                raise _broken(path, f"{size} bytes are too few for a header")
            (length,) = struct.unpack("<Q", length_bytes)
            if length > size - 8 or length > MOST_HEADER_BYTES:
                raise _broken(path, f"the header claims {length} bytes, the file has {size}")
            header = file.read(length)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        directory = json.loads(header, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"the header is not valid JSON ({error})") from error
    if not isinstance(directory, dict):
        raise _broken(path, "the header is not a JSON object")
    metadata = directory.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _broken(path, "__metadata__ must map text to text")
    start = 8 + length
    slots = [_slot(path, name, described, start, size) for name, described in directory.items()]
    slots.sort(key=lambda slot: slot.offset)
    _check_tiling(path, slots, start, size)
    return TensorFile(path, {slot.name: slot for slot in slots}, metadata)


def _slot(path: Path, name: str, described: Any, start: int, size: int) -> Slot:
    try:
        dtype = _DTYPE_NAMES[described["dtype"]]
        shape = tuple(described["shape"])
        begin, end = described["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise _wrongly_described(path, name, described, error) from error
    if not is_shape(shape) or not is_shape((begin, end)):
        raise _broken(path, f"tensor {name!r} has an impossible shape or place: {str(described)[:200]}")
    if end - begin != prod(shape) * dtype_named(dtype).itemsize or start + end > size:
        raise _broken(
            path,
            f"tensor {name!r} of {dtype} {list(shape)} does not fit its {end - begin} bytes at {begin} "
            f"(the file has {max(size - start, 0)} bytes of data)",
        )
    return Slot(name, dtype, shape, start + begin, end - begin)


def _wrongly_described(path: Path, name: str, described: Any, error: Exception) -> UnreadableFile:
    if not isinstance(described, dict):
        return _broken(path, f"tensor {name!r} is not described as dtype, shape, data_offsets")
    code = described.get("dtype")
    if not isinstance(code, str) or code not in _DTYPE_NAMES:
        return _broken(path, f"tensor {name!r} has the dtype {code!r}, which is not one of {', '.join(_DTYPE_NAMES)}")
    return _broken(path, f"tensor {name!r} is not described as dtype, shape, data_offsets: {error!r}")


def _check_tiling(path: Path, slots: Sequence[Slot], start: int, size: int) -> None:
    position = start
    for slot in slots:
        if slot.offset != position:
            raise _broken(path, f"tensor {slot.name!r} overlaps another or leaves a hole before it")
        position += slot.nbytes
    if position != size:
        raise _broken(path, f"{abs(size - position)} bytes {'too many' if size > position else 'missing'} at its end")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("duplicate name")
    return content


def _broken(path: Path, why: str) -> UnreadableFile:
    return UnreadableFile(f"{path} is not a whole safetensors file: {why}. Was it cut short, or is it another format?")


def write_tensors(file: BinaryIO, tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, one tensor after the other, never holding more than one extra copy of a tensor."""
    # Widest first keeps every tensor aligned to its own item size.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for name, array in ordered:
        header[name] = {
            "dtype": SAFETENSORS_CODES[dtype_name(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [position, position + array.nbytes],
        }
        position += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)))
    file.write(text)
    for _, array in ordered:
        # As bytes: file.write of ml_dtypes arrays is refused by the buffer protocol.
        file.write(file_bytes(array).data)


def recognises(path: Path) -> bool:
    if not is_file(path):
        return False
    if path.suffix == ".safetensors":
        return True
    head = first_bytes(path, 9)
    return len(head) == 9 and head[8:9] == b"{" and struct.unpack("<Q", head[:8])[0] < path.stat().st_size


def open_recording(path: Path, *, trust: bool = False) -> Recording:
    directory = read_directory(path)
    described = read_metadata(directory)
    if described is None:
        entries = tuple(_plain_entry(directory, name) for name in directory.slots)
        return Recording(entries, source=str(path))
    return Recording(
        entries=tuple(_entry(directory, one) for one in described["entries"]),
        source=str(path),
        **facts_from(described, complete=True, where=str(path)),
    )


def save_recording(recording: Recording, path: Path) -> Path:
    tensors = {
        str(entry.key): encode(entry.read(), key=str(entry.key))
        for entry in recording.entries
        if entry.stored_as is not None
    }
    with replacing(path) as file:
        write_tensors(file, tensors, {METADATA_NAME: describe_recording(recording)})
    return path


def read_metadata(directory: TensorFile) -> dict[str, Any] | None:
    """What reprod_log wrote about the file, or None when it is someone else's."""
    text = directory.metadata.get(METADATA_NAME)
    return None if text is None else read_description(text, where=directory.path)


def _entry(directory: TensorFile, described: Any) -> Entry:
    entry = entry_from(described, lambda: _read(directory, entry), where=directory.path)
    if entry.stored_as is not None and str(entry.key) not in directory.slots:
        raise UnreadableFile(f"{directory.path}: {str(entry.key)!r} is described, but its tensor is not in the file")
    return entry


def _read(directory: TensorFile, entry: Entry) -> Array:
    return decoded(entry, directory.view(directory.slots[str(entry.key)]), where=directory.path)


def _plain_entry(directory: TensorFile, name: str) -> Entry:
    slot = directory.slots[name]
    return Entry(Key.parse(name), slot.shape, slot.dtype, read=lambda: directory.view(slot))
