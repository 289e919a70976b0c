"""A recording as numpy's `.npz` (a zip of `.npy`), readable by numpy alone; archives of others open as well."""

from __future__ import annotations

import lzma
import struct
import threading
import weakref
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from reprod_log.errors import UnreadableFile, listed
from reprod_log.recording.encoding import (
    STORABLE,
    decoded,
    describe_recording,
    encode,
    entry_from,
    facts_from,
    read_description,
)
from reprod_log.recording.entry import Array, Entry, dtype_name
from reprod_log.recording.files import first_bytes, is_file, opened, replacing
from reprod_log.recording.key import Key
from reprod_log.recording.npy import Header, array_from, read_header
from reprod_log.recording.recording import Recording

TITLE = ".npz archive"
SUFFIXES = (".npz",)

_DESCRIPTION = "__reprod_log__.json"
_SUSPICIOUS_RATIO = 200
_HARMLESS_BYTES = 1 << 26
"""All members together may grow 200-fold, or to 64 MB, when unpacked; more is taken for a bomb unless trusted."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What numpy writes. The reader of zip archives unpacks the others without a bound, whatever a member claims to be."""
_NATIVE = STORABLE - {"bfloat16", "float8_e5m2", "float8_e4m3fn"}
"""numpy writes the kinds of ml_dtypes as raw void, so they go as bytes."""
_BROKEN = (
    zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError,
    struct.error, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What the zip reader and its decompressors meet a broken archive with."""


def recognises(path: Path) -> bool:
    return is_file(path) and (path.suffix == ".npz" or (first_bytes(path, 2) == b"PK" and _is_zip(path)))


def _is_zip(path: Path) -> bool:
    with opened(path) as file:
        return zipfile.is_zipfile(file)


class _Archive:
    """An archive whose directory is read once, at the first entry that is read; from then on it stays open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opening = threading.Lock()
        self._zip: zipfile.ZipFile | None = None

    def read(self, name: str) -> Array:
        """The array of this member."""
        try:
            with self._opening:
                if self._zip is None:
                    file = opened(self.path)
                    weakref.finalize(self, file.close)
                    self._zip = zipfile.ZipFile(file)
            return _read_member(self.path, self._zip, name)
        except (KeyError, *_BROKEN) as error:
            raise UnreadableFile(f"{self.path}: cannot read {name!r}: {error}") from error


def open_recording(path: Path, *, trust: bool = False) -> Recording:
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            if not trust:
                _refuse_bomb(path, archive.infolist())
            names = archive.namelist()
            if _DESCRIPTION in names:
                return _ours(path, archive)
            arrays = [name for name in names if name.endswith(".npy")]
            if names and not arrays:
                raise UnreadableFile(
                    f"{path} is a zip archive without arrays (it has {listed(names, most=3)}), as checkpoints of "
                    "weights are. Weights are transferred by reprod_log.transfer, not compared as recordings."
                )
            later = _Archive(path)
            entries = tuple(_plain_entry(later, archive, name) for name in arrays)
            return Recording(entries, source=str(path))
    except _BROKEN as error:
        raise UnreadableFile(f"{path} is not a whole .npz archive: {error}. Was it cut short?") from error


def save_recording(recording: Recording, path: Path) -> Path:
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for entry in recording.entries:
            if entry.stored_as is not None:
                stored = np.asarray(encode(entry.read(), key=str(entry.key), native=_NATIVE), order="C")
                with archive.open(f"{entry.key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, stored, allow_pickle=False)
        archive.writestr(_DESCRIPTION, describe_recording(recording))
    return path


def _ours(path: Path, archive: zipfile.ZipFile) -> Recording:
    with archive.open(_DESCRIPTION) as member:
        described = read_description(member.read(archive.getinfo(_DESCRIPTION).file_size + 1), where=path)
    later = _Archive(path)
    return Recording(
        entries=tuple(_described_entry(later, one) for one in described["entries"]),
        source=str(path),
        **facts_from(described, complete=True, where=str(path)),
    )


def _described_entry(later: _Archive, described: Any) -> Entry:
    def read() -> Array:
        return decoded(entry, later.read(f"{entry.key}.npy"), where=later.path, native=_NATIVE)

    entry = entry_from(described, read, where=later.path)
    return entry


def _plain_entry(later: _Archive, archive: zipfile.ZipFile, name: str) -> Entry:
    where = f"{later.path}: {name!r}"
    with archive.open(name) as member:
        shape, _, dtype = _header(member, where)
    if dtype.kind == "V":
        raise UnreadableFile(
            f"{where} holds records or raw bytes ({dtype}), as numpy writes "
            "bfloat16, too; save each field by itself, and bfloat16 as float32"
        )
    return Entry(Key.parse(name.removesuffix(".npy")), shape, dtype_name(dtype), read=lambda: later.read(name))


def _read_member(path: Path, archive: zipfile.ZipFile, name: str) -> Array:
    where = f"{path}: {name!r}"
    with archive.open(name) as member:
        header = _header(member, where)
        shape, _, dtype = header
        # Without a number the whole member is unpacked first, whatever it says its size is.
        data = member.read(min(prod(shape) * dtype.itemsize, archive.getinfo(name).file_size) + 1)
    return array_from(data, header, where=where)


def _header(member: IO[bytes], where: str) -> Header:
    header = read_header(member, where=where)
    if header[2].hasobject:
        raise UnreadableFile(f"{where} holds pickled objects, which are not read from archives")
    return header


def _refuse_bomb(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Raise when unpacking everything would take much more than the file is worth."""
    if_yours = "if you made this file yourself, allow it with trust=True (command line: --trust)"
    other = next((one.filename for one in members if one.compress_type not in _METHODS), None)
    if other is not None:
        raise UnreadableFile(
            f"{path}: {other!r} is compressed in a way that numpy does not write. Pack it again with "
            f"numpy.savez_compressed; {if_yours}"
        )
    packed = sum(one.compress_size for one in members)
    if packed > path.stat().st_size:
        raise UnreadableFile(f"{path}: its members claim {packed} bytes, more than the file has; {if_yours}")
    unpacked = sum(one.file_size for one in members)
    if unpacked > max(_HARMLESS_BYTES, _SUSPICIOUS_RATIO * packed):
        raise UnreadableFile(f"{path} would unpack from {packed} to {unpacked} bytes; {if_yours}")
