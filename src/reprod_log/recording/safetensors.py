"""A recording in one `.safetensors` file; files of others, which carry only tensors, open as well."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from reprod_log.errors import NewerFormat, UnreadableFile
from reprod_log.recording.atomic import replacing
from reprod_log.recording.encoding import decode, describe, encode, entry_from, facts_from
from reprod_log.recording.entry import Array, Entry
from reprod_log.recording.key import Key
from reprod_log.recording.opening import first_bytes
from reprod_log.recording.recording import Recording
from reprod_log.recording.remote import is_file
from reprod_log.recording.tensorfile import TensorFile, read_directory, write_tensors

TITLE = "safetensors file"
SUFFIXES = (".safetensors",)

FORMAT_VERSION = 1
"""1: first version. Raise it when an older reader would misread, not when something is added."""
METADATA_NAME = "reprod_log"


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
    tensors, descriptions = {}, []
    for entry in recording.entries:
        descriptions.append(describe(entry))
        if entry.stored_as is not None:
            tensors[str(entry.key)] = encode(entry.read(), key=str(entry.key))
    described = {
        "version": FORMAT_VERSION,
        "provenance": recording.provenance.to_dict(),
        "modules": [module.to_dict() for module in recording.modules],
        "complete": recording.complete,
        "notes": list(recording.notes),
        "entries": descriptions,
    }
    with replacing(path) as file:
        write_tensors(file, tensors, {METADATA_NAME: json.dumps(described, ensure_ascii=False)})
    return path


def read_metadata(directory: TensorFile) -> dict[str, Any] | None:
    """What reprod_log wrote about the file, or None when it is someone else's."""
    text = directory.metadata.get(METADATA_NAME)
    if text is None:
        return None
    try:
        described = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{directory.path}: the description of its entries is not valid JSON ({error})") from error
    check_version(described, directory.path)
    if not isinstance(described.get("entries"), list):
        raise UnreadableFile(f"{directory.path}: the description has no list of entries")
    return dict(described)


def check_version(described: object, path: Path) -> None:
    """Raise unless `described` is an object of a format version that this code can read."""
    if not isinstance(described, dict) or not isinstance(described.get("version"), int):
        raise UnreadableFile(f"{path}: the description does not name its format version")
    if described["version"] > FORMAT_VERSION:
        raise NewerFormat(
            f"{path} has format version {described['version']}, this reprod_log reads up to {FORMAT_VERSION}. "
            "Upgrade reprod_log to open it."
        )


def _entry(directory: TensorFile, described: dict[str, Any]) -> Entry:
    where = f"{directory.path}: {described.get('key') if isinstance(described, dict) else described!r}"
    if not isinstance(described, dict):
        raise UnreadableFile(f"{where}: an entry is not a JSON object")
    name = described.get("key")
    entry = entry_from(described, lambda: _read(directory, entry), where=where)
    if entry.stored_as is not None and name not in directory.slots:
        raise UnreadableFile(f"{where}: described, but its tensor is not in the file")
    return entry


def _read(directory: TensorFile, entry: Entry) -> Array:
    assert entry.stored_as is not None
    (dtype, shape), name = entry.stored_as, str(entry.key)
    return decode(directory.view(directory.slots[name]), dtype=dtype, shape=shape, where=f"{directory.path}: {name!r}")


def _plain_entry(directory: TensorFile, name: str) -> Entry:
    slot = directory.slots[name]
    return Entry(Key.parse(name), slot.shape, slot.dtype, read=lambda: directory.view(slot))
