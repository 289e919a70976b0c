"""How an entry is put into a file: dtypes that the format lacks, and the description beside the data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from reprod_log.errors import RecordingError, UnreadableFile
from reprod_log.record.entry import Array, Entry, dtype_name, dtype_named
from reprod_log.record.key import Key
from reprod_log.record.tensorfile import STORABLE


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
    plain = np.ascontiguousarray(array)
    if plain.dtype.byteorder == ">":
        plain = plain.astype(plain.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8)


def decode(
    stored: Array, *, dtype: str, shape: tuple[int, ...], where: str, native: frozenset[str] = STORABLE
) -> Array:
    """The array that `encode` was given."""
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
    if real.hasobject or stored.size != prod(shape) * real.itemsize:
        raise UnreadableFile(f"{where}: {stored.size} bytes are not {dtype} {list(shape)}")
    return stored.view(real).reshape(shape)


def _decode_text(stored: Array, dtype: str, shape: tuple[int, ...], where: str) -> Array:
    try:
        content = json.loads(stored.tobytes())
        array: Array = np.empty(shape, object)
        if shape:
            array[...] = content
        else:
            array[()] = content
        return array.astype(str) if dtype == "str" else array
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableFile(f"{where}: the stored text does not fit {list(shape)} ({error})") from error


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


def entry_from(described: Mapping[str, Any], read: Callable[[], Array], *, where: str) -> Entry:
    """The entry that was described, with `read` as the way to its data."""
    try:
        key, dtype, shape = described["key"], described["dtype"], tuple(described["shape"])
        detail = described.get("detail", "full")
        meta = described.get("meta", {})
        sound = (
            isinstance(key, str)
            and isinstance(dtype, str)
            and all(type(d) is int and d >= 0 for d in shape)
            and len(shape) <= 64
            and detail in ("full", "summary", "sketch")
            and isinstance(meta, dict)
        )
    except (KeyError, TypeError) as error:
        raise UnreadableFile(f"{where}: an entry lacks its key, dtype or shape ({error!r})") from error
    if not sound:
        raise UnreadableFile(f"{where}: an entry is described wrongly: {str(described)[:200]}")
    return Entry(
        key=Key.parse(key),
        shape=shape,
        dtype=dtype,
        read=read,
        layer_type=str(described.get("layer_type", "")),
        detail=detail,
        hash=str(described.get("hash", "")),
        meta=meta,
    )
