"""Fake data: made once with seeded numpy, saved, and hashed, so that both sides are fed the same bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from reprod_log.errors import UnreadableFile, UsageError
from reprod_log.recording import Array, Recording, current_provenance
from reprod_log.recording.entry import content_hash
from reprod_log.recording.stores import load

Make = Callable[[np.random.Generator], Mapping[str, Any]]


@dataclass(frozen=True)
class FakeData:
    """Arrays by name, where they lie, and the hash that goes into every recording made from them."""

    arrays: Mapping[str, Array]
    hash: str
    path: Path

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def stamped(self, recording: Recording) -> Recording:
        """The recording with this data's hash in its provenance."""
        known = recording.provenance
        extra = {**known.extra, "fake_data": self.hash}
        return replace(recording, provenance=replace(known, data_hash=known.data_hash or self.hash, extra=extra))


def fake_data(path: str | Path, make: Make, *, seed: int = 0) -> FakeData:
    """The arrays at `path` (.npz), made by `make(generator)` and saved if they are not there yet.

    The first side to run makes them; both sides read the file. What was read is checked against its hash.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise UsageError(f"fake data is kept as .npz, so that numpy alone can read it; {path} has another suffix")
    if not path.exists():
        arrays = {name: np.asarray(value) for name, value in make(np.random.default_rng(seed)).items()}
        if not arrays:
            raise UsageError(f"no fake data was made for {path}")
        origin = current_provenance(seeds={"numpy": seed}, data_hash=_hash(arrays))
        Recording.from_arrays(arrays, provenance=origin).save(path)
    stored = load(path)
    known = stored.provenance
    if known.seeds.get("numpy") != seed:
        raise UsageError(
            f"{path} was made with seed {known.seeds.get('numpy')}, not {seed}; remove it or give another path"
        )
    found = {str(entry.key): np.array(entry.array()) for entry in stored.entries}
    if _hash(found) != known.data_hash:
        raise UnreadableFile(f"{path} has changed since it was made (its hash differs); remove it to make it again")
    return FakeData(found, known.data_hash, path)


def _hash(arrays: Mapping[str, Array]) -> str:
    hasher = xxhash.xxh3_128()
    for name, array in arrays.items():
        hasher.update(f"{name} {content_hash(array)}\n".encode())
    return hasher.hexdigest()
