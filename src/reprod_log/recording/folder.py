"""A recording as a folder: `manifest.json` and one safetensors shard per step, readable while it grows.

    recording/
      manifest.json            format version, provenance, modules; rewritten with the list of shards when it is closed
      shards/000000.safetensors  the entries of one step (or a part of it), with their description inside

A shard appears under its name only when it is whole, so whatever a killed process leaves behind is readable.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from reprod_log.errors import RecordingError, UnreadableFile, UsageError, WriteFailed
from reprod_log.messages import Names, Note, message
from reprod_log.recording.encoding import (
    FORMAT_VERSION,
    check_version,
    decode,
    describe,
    describe_facts,
    encode,
    entry_from,
    facts_from,
)
from reprod_log.recording.entry import Array, Entry, content_hash
from reprod_log.recording.files import check_inside, is_file, is_remote, is_running, replacing, unreadable
from reprod_log.recording.recording import ModuleInfo, Provenance, Recording
from reprod_log.recording.safetensors import (
    METADATA_NAME,
    Slot,
    TensorFile,
    read_directory,
    read_metadata,
    write_tensors,
)

if TYPE_CHECKING:
    from filelock import FileLock

TITLE = "folder of shards"
SUFFIXES = ("",)

_MANIFEST = "manifest.json"
_SHARDS = "shards"
_SHARD_NAME = re.compile(r"[0-9A-Za-z_-]+\.safetensors")
_SHARD_BYTES = 1 << 28
"""A saved recording starts a new shard at a new step or after 256 MB."""
_LOCK_FILE = ".writing"
_LOCK_PATIENCE = 0.2
"""Seconds until a lock counts as held: whoever has just got it has then written who they are."""


def recognises(path: Path) -> bool:
    return (is_remote(path) or path.is_dir()) and is_file(path / _MANIFEST)


def open_recording(path: Path, *, trust: bool = False) -> Recording:
    if not trust:
        check_inside(path / _MANIFEST, path)
    manifest = _read_manifest(path)
    present = _present_shards(path, manifest)
    if not trust:
        for shard in present:
            check_inside(shard, path)
    directories = {shard.name: read_directory(shard) for shard in present}
    listed_shards: list[str] = manifest.get("shards") or []
    facts = facts_from(manifest, complete=False, where=str(path))
    foreign = [name for name, one in directories.items() if not _belongs(name, one, manifest)]
    if foreign:
        facts["notes"] += (message("note.recording.shards_foreign", shards=Names(foreign)),)
        directories = {name: one for name, one in directories.items() if name not in foreign}
    missing = [name for name in listed_shards if name not in directories]
    if missing:
        facts["complete"] = False
        lost = message(
            "note.recording.shards_missing", missing=len(missing), total=len(listed_shards), shards=Names(missing)
        )
        facts["notes"] += (lost,)
    maps = _Maps(directories)
    entries: list[Entry] = []
    without: list[str] = []
    for name, directory in directories.items():
        described = read_metadata(directory)
        if described is None:
            raise UnreadableFile(
                f"{directory.path} is not a shard of a recording: it has no description of its entries"
            )
        for one in described["entries"]:
            entry = _entry(maps, name, one, where=str(directory.path))
            if entry is None:
                without.append(str(one["key"]))
            else:
                entries.append(entry)
    if without:
        facts["notes"] += (message("note.recording.entries_missing", count=len(without), keys=Names(without)),)
    return Recording(entries=tuple(entries), source=str(path), **facts)


def _present_shards(path: Path, manifest: Mapping[str, Any]) -> list[Path]:
    names = manifest.get("shards")
    if names is not None:
        # Only what belongs to it; and not every server can list a folder.
        return [shard for name in sorted(names) if is_file(shard := path / _SHARDS / name)]
    return sorted((path / _SHARDS).glob("*.safetensors"), key=lambda shard: shard.name)


def save_recording(recording: Recording, path: Path) -> Path:
    """Write beside the target and swap at the end, so that what stood there survives a failure."""
    _refuse_foreign(path)
    if (path / _LOCK_FILE).exists():
        _Lock(path).release()
    workplace: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        workplace = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
        writer = FolderWriter(workplace / "new", provenance=recording.provenance, modules=recording.modules)
        batch: list[tuple[Entry, Array | None]] = []
        size, step = 0, None
        for entry in recording.entries:
            if batch and (entry.key.step != step or size >= _SHARD_BYTES):
                writer.write_shard(batch)
                batch, size = [], 0
            step = entry.key.step
            batch.append((entry, None if entry.stored_as is None else entry.read()))
            size += entry.nbytes
        if batch:
            writer.write_shard(batch)
        writer.close(complete=recording.complete, notes=recording.notes)
        _swap(workplace, path)
    except OSError as error:
        if isinstance(error, WriteFailed):
            raise
        raise WriteFailed(error.errno or 0, f"could not write {path}: {error.strerror or error}") from error
    finally:
        if workplace is not None:
            shutil.rmtree(workplace, ignore_errors=True)
    return path


def _swap(workplace: Path, path: Path) -> None:
    """Put the new recording where the old one stands, and the old one back when that fails."""
    old = workplace / "old"
    if not path.exists():
        (workplace / "new").rename(path)
        return
    path.rename(old)
    try:
        (workplace / "new").rename(path)
    except OSError:
        old.rename(path)
        raise


_MOST_PLACES = 20_000
"""Stored tensors that a later one is compared with; frozen weights and repeated inputs come back at every step."""


class FolderWriter:
    """Writes a growing recording, shard by shard. Each shard is whole or not there at all."""

    def __init__(
        self, path: str | Path, *, provenance: Provenance | None = None, modules: Sequence[ModuleInfo] = ()
    ) -> None:
        self.path = Path(path)
        self.provenance = provenance or Provenance()
        self.modules = tuple(modules)
        self._digests: dict[str, str] = {}
        self._places: dict[tuple[str, str], tuple[str, str]] = {}
        _refuse_foreign(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _Lock(self.path)
        if (self.path / _SHARDS).exists():
            # Not ignoring errors: a shard of the old recording that stays would be read as one of the new.
            shutil.rmtree(self.path / _SHARDS)
        (self.path / _MANIFEST).unlink(missing_ok=True)
        (self.path / _SHARDS).mkdir(parents=True, exist_ok=True)
        self.write_manifest(complete=False)

    def write_shard(self, batch: Sequence[tuple[Entry, Array | None]]) -> None:
        """Write these entries with their data (None: description only) as the next shard."""
        name = f"{len(self._digests):06d}.safetensors"
        tensors: dict[str, Array] = {}
        descriptions = []
        for entry, array in batch:
            if array is not None and not entry.hash and entry.detail == "full" and array.dtype.kind in "biufc":
                entry = replace(entry, hash=content_hash(array))
            described = describe(entry)
            if array is not None:
                key = str(entry.key)
                content = (entry.hash, "" if entry.detail == "full" else str(entry.meta["sketch"]))
                place = self._place(content, (name, key)) if entry.hash else (name, key)
                if place == (name, key):
                    tensors[key] = encode(array, key=key)
                else:
                    # An equal tensor is stored already: frozen weights and repeated inputs cost nothing.
                    described["at"] = list(place)
            descriptions.append(described)
        text = json.dumps({"version": FORMAT_VERSION, "entries": descriptions}, ensure_ascii=False)
        with replacing(self.path / _SHARDS / name, tidy=False) as file:
            write_tensors(file, tensors, {METADATA_NAME: text})
        self._digests[name] = _digest(text)

    def _place(self, content: tuple[str, str], place: tuple[str, str]) -> tuple[str, str]:
        """Where a tensor with this content is stored: here, unless it is one of those last written or asked for."""
        found = self._places.pop(content, place)
        self._places[content] = found
        if len(self._places) > _MOST_PLACES:
            del self._places[next(iter(self._places))]
        return found

    def write_manifest(self, *, complete: bool, notes: Sequence[Note] = ()) -> None:
        facts = describe_facts(self.provenance, self.modules, complete=complete, notes=notes)
        manifest = {"format": "reprod_log recording", **facts}
        if complete:
            manifest |= {"shards": list(self._digests), "digests": self._digests}
        with replacing(self.path / _MANIFEST, tidy=False) as file:
            file.write(json.dumps(manifest, ensure_ascii=False, indent=1).encode())

    def close(self, *, complete: bool = True, notes: Sequence[Note] = ()) -> None:
        """Write the final manifest, and let others write here again."""
        try:
            self.write_manifest(complete=complete, notes=notes)
        finally:
            self._lock.release()


class _Lock:
    """One process at a time writes a recording: held until `release`, the end of its owner, or that of the process."""

    def __init__(self, folder: Path) -> None:
        # 10 ms to import, and whoever only reads does not need them.
        import socket

        from filelock import FileLock, Timeout

        path, host = folder / _LOCK_FILE, socket.gethostname()
        lock = FileLock(path, thread_local=False, on_acquired=lambda number: _write_holder(number, host))
        try:
            lock.acquire(timeout=_LOCK_PATIENCE)
        except Timeout:
            holder = _holder(path)
            if _may_run(holder, host):
                raise RecordingError(
                    f"{folder} is being written by process {holder.get('pid', '?')} on {holder.get('host', '?')}. "
                    f"Choose another name, or wait until it has ended; if there is no such process, remove {path}."
                ) from None
            # Worker processes inherit the lock, and may outlive a parent that was killed.
            path.unlink(missing_ok=True)
            lock.acquire(timeout=_LOCK_PATIENCE)
        self.release = weakref.finalize(self, _release, lock, path, os.getpid())


def _write_holder(number: int, host: str) -> None:
    """Say in the lock file who holds it; its first byte is what is locked, which not every system lets others read."""
    os.ftruncate(number, 0)
    os.write(number, f" {json.dumps({'pid': os.getpid(), 'host': host})}".encode())


def _holder(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            file.seek(1)
            found = json.loads(file.read(1000))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _may_run(holder: Mapping[str, Any], host: str) -> bool:
    """Whether the process that holds the lock may still run; of another machine that cannot be known."""
    pid = holder.get("pid")
    if holder.get("host") != host or not isinstance(pid, int) or pid <= 0 or os.name != "posix":
        return True
    return is_running(pid)


def _release(lock: FileLock, path: Path, owner: int) -> None:
    # A forked child that ends has not written anything.
    if owner == os.getpid():
        # Before the lock is released: others look whether the file they have locked still has its name.
        with suppress(OSError):
            path.unlink()
        lock.release()


class _Maps:
    """Open maps of the shards, the most recently used few: a thousand steps must not need a thousand open files."""

    _MOST = 32

    def __init__(self, directories: Mapping[str, TensorFile]) -> None:
        self.directories = directories
        self._open: OrderedDict[str, mmap.mmap] = OrderedDict()

    def view(self, shard: str, slot: Slot) -> Array:
        directory = self.directories[shard]
        mapped = self._open.get(shard)
        if mapped is None and not is_remote(directory.path):
            mapped = self._open[shard] = directory.map()
            while len(self._open) > self._MOST:
                # Arrays that still look into it keep it alive.
                self._open.popitem(last=False)
        return directory.view(slot, mapped)


class _Reading:
    """Reads an entry's data when it is asked for. It has no reference to its entry, so that they form no cycle."""

    __slots__ = ("described", "maps", "shard", "slot", "where")
    described: tuple[str, tuple[int, ...]]
    """dtype and shape of what is to be read."""
    shard: str
    slot: Slot

    def __init__(self, maps: _Maps, where: str) -> None:
        self.maps, self.where = maps, where

    def __call__(self) -> Array:
        dtype, shape = self.described
        return decode(self.maps.view(self.shard, self.slot), dtype=dtype, shape=shape, where=self)

    def __str__(self) -> str:
        return f"{self.where}: {self.slot.name!r}"


def _entry(maps: _Maps, shard: str, described: Any, *, where: str) -> Entry | None:
    """The entry that was described; None when its data is in a shard that is missing."""
    read = _Reading(maps, where)
    entry = entry_from(described, read, where=where)
    source, tensor = shard, str(entry.key)
    if "at" in described:
        place = described["at"]
        if not (isinstance(place, list) and len(place) == 2 and all(isinstance(one, str) for one in place)):
            raise UnreadableFile(f"{where}: {tensor!r} does not say where its data is")
        source, tensor = place
    stored_as = entry.stored_as
    if stored_as is None:
        return entry
    directory = maps.directories.get(source)
    if directory is None and _SHARD_NAME.fullmatch(source):
        return None
    slot = None if directory is None else directory.slots.get(tensor)
    if slot is None:
        raise UnreadableFile(f"{where}: the data of {str(entry.key)!r} should be in shard {source!r}, which lacks it")
    read.described, read.shard, read.slot = stored_as, source, slot
    return entry


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / _MANIFEST
    try:
        manifest = json.loads(file.read_bytes())
    except OSError as error:
        raise unreadable(file, error) from error
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{file} is not valid JSON ({error})") from error
    check_version(manifest, file)
    shards = manifest.get("shards")
    if shards is not None and not (isinstance(shards, list) and all(map(_is_shard_name, shards))):
        raise UnreadableFile(f"{file}: 'shards' must be a list of names of shards, not of paths")
    return dict(manifest)


def _digest(description: str) -> str:
    """What tells a shard from one of another recording: its entries are described with the hashes of their contents."""
    return xxhash.xxh3_64(description.encode("utf-8", "surrogatepass")).hexdigest()


def _belongs(name: str, shard: TensorFile, manifest: Mapping[str, Any]) -> bool:
    """Whether a shard is the one that was written here, and not left by another run or copied from one."""
    digests = manifest.get("digests")
    known = digests.get(name) if isinstance(digests, Mapping) else None
    return known is None or known == _digest(shard.metadata.get(METADATA_NAME, ""))


def _is_shard_name(name: object) -> bool:
    return isinstance(name, str) and _SHARD_NAME.fullmatch(name) is not None


def _refuse_foreign(path: Path) -> None:
    """Never write into a folder that holds something else than a recording."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise UsageError(f"{path} exists and is not a folder; choose another name")
    if path.is_dir() and not (path / _MANIFEST).is_file() and not _only_begun(path):
        raise RecordingError(f"{path} holds files that are not a recording; choose an empty or new folder")


def _only_begun(path: Path) -> bool:
    """Whether a folder is empty, or has what a recording that was killed at its start leaves behind."""
    found = [
        name for name in os.listdir(path) if name not in (_SHARDS, _LOCK_FILE) and not name.startswith(f".{_MANIFEST}.")
    ]
    shards = path / _SHARDS
    return not found and all(".safetensors" in name for name in (os.listdir(shards) if shards.is_dir() else ()))
