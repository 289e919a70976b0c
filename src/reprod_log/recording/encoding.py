"""How an entry is written to a file: dtypes that the format lacks, the description beside the data, and its check."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from math import prod
from sys import intern
from typing import Any

import numpy as np

from reprod_log.errors import NewerFormat, RecordingError, UnreadableFile
from reprod_log.messages import Note, notes_from_dict, notes_to_dict
from reprod_log.recording.entry import Array, Entry, dtype_name, dtype_named, is_shape
from reprod_log.recording.key import Key
from reprod_log.recording.recording import ModuleInfo, Provenance, Recording
from reprod_log.recording.sketch import read_facts
from reprod_log.recording.summary import check_summary

SAFETENSORS_CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "complex64": "C64",
}
FORMAT_VERSION = 1
"""1: first version. Raise it when an older reader would misread, not when something is added."""
STORABLE = frozenset(SAFETENSORS_CODES)
"""dtypes that safetensors has a code for."""
_HARMLESS_BYTES = 1 << 26


def encode(array: Array, *, key: str = "", native: frozenset[str] = STORABLE) -> Array:
    """The array in a dtype the format has (`native`): itself, its raw bytes (complex128, some float8), or JSON text."""
    name = dtype_name(array.dtype)
    if name in native:
        return array
    if name in ("str", "object"):
        try:
            text = json.dumps(array.tolist(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise RecordingError(
                f"{key!r} holds {name} values that are neither numbers nor text ({error}); "
                "record the numbers in it as arrays of their own"
            ) from error
        return np.frombuffer(text.encode(), np.uint8)
    if array.dtype.kind == "S":
        raise RecordingError(f"{key!r} holds raw bytes; decode it to text or view it as uint8 first")
    return file_bytes(array)


def file_bytes(array: Array) -> Array:
    """The elements one after the other, little-endian, as bytes."""
    plain = np.ascontiguousarray(array)
    if plain.dtype.byteorder == ">":
        plain = plain.astype(plain.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8)


def decode(
    stored: Array, *, dtype: str, shape: tuple[int, ...], where: object, native: frozenset[str] = STORABLE
) -> Array:
    """The array that `encode` was given; `where` is printed in messages."""
    if dtype in native:
        if dtype_name(stored.dtype) != dtype or stored.shape != shape:
            raise UnreadableFile(
                f"{where}: described as {dtype} {list(shape)}, stored as {stored.dtype} {list(stored.shape)}"
            )
        return stored
    if stored.dtype != np.uint8 or stored.ndim != 1:
        raise UnreadableFile(f"{where}: described as {dtype}, but not stored as bytes")
    if dtype in ("str", "object"):
        return _decode_text(stored, dtype, shape, where)
    real = dtype_named(dtype)
    if real.hasobject or real.itemsize == 0 or stored.size != prod(shape) * real.itemsize:
        raise UnreadableFile(f"{where}: {stored.size} bytes are not {dtype} {list(shape)}")
    return stored.view(real).reshape(shape)


def _decode_text(stored: Array, dtype: str, shape: tuple[int, ...], where: object) -> Array:
    try:
        content = json.loads(stored.tobytes())
        # Every item takes at least one byte of JSON.
        if prod(shape) > stored.size or max(shape, default=0) > stored.size:
            raise ValueError(f"{prod(shape)} items cannot stand in {stored.size} bytes")
        array: Array = np.empty(shape, object)
        items = [content]
        for length in shape:
            if not all(isinstance(one, list) and len(one) == length for one in items):
                raise ValueError("the lists in it have other lengths")
            items = [item for one in items for item in one]
        for place, item in enumerate(items):
            array.reshape(-1)[place] = item
        return as_text(array, where=where) if dtype == "str" else array
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{where}: the stored text does not fit {list(shape)} ({error})") from error


def as_text(array: Array, *, where: object) -> Array:
    """The array of objects as numpy keeps text: every item as wide as the longest, refused when that is a trap."""
    texts = [str(item) for item in array.reshape(-1)]
    padded = 4 * len(texts) * max(map(len, texts), default=0)
    if padded > max(_HARMLESS_BYTES, 64 * sum(map(len, texts))):
        raise UnreadableFile(f"{where}: {len(texts)} texts would take {padded} bytes, because one of them is so long")
    return np.array(texts, str).reshape(array.shape) if texts else np.empty(array.shape, str)


def describe(entry: Entry) -> dict[str, Any]:
    """What stands in the metadata about an entry (its place in the file is added by the store)."""
    described: dict[str, Any] = {"key": str(entry.key), "dtype": entry.dtype, "shape": list(entry.shape)}
    if entry.layer_type:
        described["layer_type"] = entry.layer_type
    if entry.detail != "full":
        described["detail"] = entry.detail
    if entry.hash:
        described["hash"] = entry.hash
    if entry.meta:
        described["meta"] = dict(entry.meta)
    return described


def describe_facts(
    provenance: Provenance, modules: Iterable[ModuleInfo], *, complete: bool, notes: Iterable[Note]
) -> dict[str, Any]:
    """What stands in a store about a recording as a whole."""
    return {
        "version": FORMAT_VERSION,
        "provenance": provenance.to_dict(),
        "modules": [module.to_dict() for module in modules],
        "complete": complete,
        **notes_to_dict(notes),
    }


def describe_recording(recording: Recording) -> str:
    """The description of a recording and of its entries, as text."""
    facts = describe_facts(recording.provenance, recording.modules, complete=recording.complete, notes=recording.notes)
    return json.dumps({**facts, "entries": list(map(describe, recording.entries))}, ensure_ascii=False)


def read_description(text: str | bytes, *, where: object) -> dict[str, Any]:
    """A description with its list of entries, of a format version that this code can read."""
    try:
        described = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{where}: the description of its entries is not valid JSON ({error})") from error
    check_version(described, where)
    if not isinstance(described.get("entries"), list):
        raise UnreadableFile(f"{where}: the description has no list of entries")
    return dict(described)


def check_version(described: object, where: object) -> None:
    """Raise unless `described` is an object of a format version that this code can read."""
    if not isinstance(described, dict) or not isinstance(described.get("version"), int):
        raise UnreadableFile(f"{where}: the description does not name its format version")
    if described["version"] > FORMAT_VERSION:
        raise NewerFormat(
            f"{where} has format version {described['version']}, this reprod_log reads up to {FORMAT_VERSION}. "
            "Upgrade reprod_log to open it."
        )


def facts_from(described: Mapping[str, Any], *, complete: bool, where: str) -> dict[str, Any]:
    """The recording's own facts in a store's description; `complete` is the value where it has none."""
    try:
        provenance = Provenance.from_dict(described.get("provenance", {}))
        modules = tuple(ModuleInfo.from_dict(one) for one in described.get("modules", ()))
        notes = notes_from_dict(described)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UnreadableFile(f"{where}: the description of its origin is damaged ({error!r})") from error
    complete = described.get("complete", complete) is True
    return {"provenance": provenance, "modules": modules, "complete": complete, "notes": notes}


def decoded(entry: Entry, stored: Array, *, where: object, native: frozenset[str] = STORABLE) -> Array:
    """The data of an entry, from what is stored of it."""
    assert entry.stored_as is not None
    dtype, shape = entry.stored_as
    return decode(stored, dtype=dtype, shape=shape, where=f"{where}: {str(entry.key)!r}", native=native)


def entry_from(described: Any, read: Callable[[], Array], *, where: object) -> Entry:
    """The entry that was described, with `read` as the way to its data."""
    if not isinstance(described, dict):
        raise UnreadableFile(f"{where}: an entry is not a JSON object")
    try:
        key, dtype, shape = described["key"], described["dtype"], tuple(described["shape"])
        detail = described.get("detail", "full")
        meta = described.get("meta", {})
        sound = (
            isinstance(key, str)
            and isinstance(dtype, str)
            and is_shape(shape)
            and detail in ("full", "summary", "sketch")
            and isinstance(meta, dict)
            and type(meta.get("terms", 1)) is int
        )
    except (KeyError, TypeError) as error:
        raise UnreadableFile(f"{where}: an entry lacks its key, dtype or shape ({error!r})") from error
    if not sound:
        raise UnreadableFile(f"{where}: an entry is described wrongly: {str(described)[:200]}")
    if detail == "sketch" and not read_facts(meta.get("sketch"), where=where)[0].fits(shape):
        raise UnreadableFile(f"{where}: the sketch of {key!r} was made of another shape than {list(shape)}")
    if detail != "full":
        check_summary(meta.get("summary"), where=where, needed=detail == "sketch")
    layer_type, digest = str(described.get("layer_type", "")), str(described.get("hash", ""))
    # Interned: ten thousand entries then share one name.
    return Entry(Key.parse(key), shape, intern(dtype), read, layer_type, detail, digest, meta)
