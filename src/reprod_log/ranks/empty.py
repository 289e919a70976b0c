"""Empty pieces: what a rank has nothing of, where flattened parameters are cut without regard to their ends.

FullyShardedDataParallel cuts all parameters of a module as one stretch, so of some a rank has no piece. Their gradients
and states are then not recorded on it; for putting pieces together an empty one stands in. Whether all pieces are there
is seen by what they make together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from reprod_log.recording import Array, Entry, Recording, dtype_named
from reprod_log.recording.shards import shard_of


def with_empty_pieces(parts: tuple[Recording, ...]) -> tuple[Recording, ...]:
    """The parts, with an empty piece wherever a rank lacks one of a flattened tensor that others have pieces of."""
    flat: dict[str, Entry] = {}
    before: dict[str, str] = {}
    for part in parts:
        last = ""
        for entry in part.entries:
            key = str(entry.key)
            shard = shard_of(entry.meta)
            if shard is not None and shard.flat and key not in flat:
                flat[key], before[key] = entry, last
            last = key
    return tuple(_filled(part, flat, before) for part in parts) if flat else parts


def _filled(part: Recording, flat: Mapping[str, Entry], before: Mapping[str, str]) -> Recording:
    lacking = [key for key in flat if key not in part]
    if not lacking:
        return part
    behind: dict[str, list[str]] = {}
    for key in lacking:
        behind.setdefault(before[key], []).append(key)
    entries: list[Entry] = []

    def place(key: str) -> None:
        """Put in what stands behind a key elsewhere, and what stands behind that."""
        for one in behind.pop(key, ()):
            entries.append(_empty(flat[one]))
            place(one)

    place("")
    for entry in part.entries:
        entries.append(entry)
        place(str(entry.key))
    for key in list(behind):
        place(key)
    return replace(part, entries=tuple(entries))


def _empty(like: Entry) -> Entry:
    read = partial(_nothing, like.dtype)
    return replace(like, shape=(0,), read=read, detail="full", hash="")


def _nothing(dtype: str) -> Array:
    return np.empty(0, dtype_named(dtype))
