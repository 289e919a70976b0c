"""Ranks: the parts of one run of several processes, found on disk and checked to belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.errors import RecordingError, UnreadableFile, UsageError
from reprod_log.messages import Foreign, Message, message
from reprod_log.ranks.mesh import Mesh, declared_mesh, missing_places, recorded_mesh
from reprod_log.ranks.opening import fact, parts_at
from reprod_log.recording import Array, Entry, Key, Recording, dtype_named
from reprod_log.recording.entry import content_hash
from reprod_log.recording.files import is_remote, location
from reprod_log.recording.shards import shard_of
from reprod_log.recording.stores import load

_START_TOGETHER = 1800
"""Seconds: process groups give up after half an hour, so ranks that train together began within it."""


@dataclass(frozen=True)
class Group:
    """The recordings of some ranks of one run that belong together, in the order of their places on an axis."""

    parts: tuple[Recording, ...]
    numbers: tuple[int, ...]
    """Which ranks they are."""
    axis: str = ""
    """What the group lies along; '' when the run has only one axis."""

    @property
    def size(self) -> int:
        return len(self.parts)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The keys that every rank has, in the order of rank 0."""
        return tuple(entry.key for entry in self.parts[0].entries if self.all_have(entry.key))

    def all_have(self, key: str | Key) -> bool:
        return all(key in part for part in self.parts)

    def entries(self, key: str | Key) -> tuple[Entry, ...]:
        """The entry of every rank under one key that all of them have."""
        return tuple(part[key] for part in self.parts)

    def unmatched(self) -> Iterator[tuple[int, Entry]]:
        """Every entry that some rank does not have, with the rank that has it."""
        shared = set(self.keys)
        for rank, part in zip(self.numbers, self.parts, strict=True):
            yield from ((rank, entry) for entry in part.entries if entry.key not in shared)


@dataclass(frozen=True)
class Ranks:
    """The recordings of all ranks of one run, in rank order."""

    parts: tuple[Recording, ...]
    source: str = ""
    mesh: Mesh | None = None
    """Where each rank stands; None when there is one axis without a name."""

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise UsageError(f"{self.source or 'ranks'}: at least two ranks are needed, not {len(self.parts)}")
        _check_places(self.parts, self.source)
        _check_same_run(self.parts, self.source)
        object.__setattr__(self, "parts", with_empty_pieces(self.parts))
        if self.mesh is None:
            object.__setattr__(self, "mesh", recorded_mesh(self.parts, self.source))

    @property
    def size(self) -> int:
        return len(self.parts)

    @cached_property
    def all(self) -> Group:
        return Group(self.parts, tuple(range(self.size)))

    def groups(self, mesh: Mesh, *along: int) -> tuple[Group, ...]:
        """The ranks that differ only in their places on these axes of the mesh."""
        name = mesh.named(along)
        return tuple(Group(tuple(self.parts[r] for r in ranks), ranks, name) for ranks in mesh.groups(*along))

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys that every rank has, in the order of rank 0."""
        return self.all.keys

    def entries(self, key: str | Key) -> tuple[Entry, ...]:
        """The entry of every rank under one key that all of them have."""
        return self.all.entries(key)

    def notes_of(self, ranks: Iterable[int]) -> tuple[Message, ...]:
        """The notes that the parts of these ranks have, each with its rank."""
        return tuple(
            message("note.ranks.of_rank", rank=rank, note=note if isinstance(note, Message) else Foreign(note))
            for rank in ranks
            for note in self.parts[rank].notes
        )


def load_ranks(path: str | Path, *, mesh: Mapping[str, int] | None = None, trust: bool = False) -> Ranks:
    """The ranks recorded at `path`, the one that `watch(save=…)` was given. Opening reads no tensor data.

    `mesh` declares the axes that the ranks lie on when they do not know it themselves, the outermost first:
    {"dp": 2, "tp": 2}.
    """
    place = location(path)
    found = parts_at(place)
    if not found:
        if not is_remote(place) and not place.exists():
            raise UnreadableFile(f"there is no {path}. Give the path that watch(save=…) had under the launcher.")
        raise UnreadableFile(
            f"{path} does not hold the parts of several ranks (rank0, rank1 …). They are written by watch(save=…) "
            "in each process of a distributed launcher."
        )
    parts = {rank: load(part, trust=trust) for rank, part in sorted(found.items())}
    sizes = {fact(part, "world_size") for part in parts.values()} - {None}
    size = max((int(one) for one in sizes), default=0)
    missing = [rank for rank in range(max(size, max(parts) + 1)) if rank not in parts]
    if missing and len(sizes) <= 1:
        # With several sizes the parts are of different runs, which Ranks says.
        total = f" of {size}" if size else ""
        places = list(missing_places(list(parts.values())))
        total += f" ({'; '.join(places[:5])})" if len(places) == len(missing) <= 5 else ""
        total += f" {_be(missing)}"
        raise UnreadableFile(
            f"{path}: {ranks_in_words(missing)}{total} missing; there {_be(parts)} {ranks_in_words(sorted(parts))}. "
            "Copy the missing parts there (each machine writes its own ranks), or record again."
        )
    declared = None if mesh is None else declared_mesh(mesh, len(parts), str(path))
    return Ranks(tuple(parts.values()), source=str(path), mesh=declared)


def _check_places(parts: tuple[Recording, ...], source: str) -> None:
    """Every part is that of the rank whose place it has, of as many ranks as there are."""
    sizes: dict[Any, list[int]] = {}
    for rank, part in enumerate(parts):
        own, size = fact(part, "rank"), fact(part, "world_size")
        if own is not None and size not in (None, 1) and own != rank:
            raise RecordingError(f"{source}: the part of rank {rank} was recorded by rank {own}; were parts renamed?")
        sizes.setdefault(size, []).append(rank)
    if len(sizes) > 1 or next(iter(sizes)) not in (None, len(parts)):
        found = "; ".join(f"{ranks_in_words(ranks)}: {size or 'unknown'}" for size, ranks in sizes.items())
        raise RecordingError(
            f"{source}: these are parts of different runs, their number of processes differs ({found}; {len(parts)} "
            "parts). Delete what an earlier run left, and record again."
        )


def _check_same_run(parts: tuple[Recording, ...], source: str) -> None:
    """What all processes of a run share: framework and version, program, commit, and about when it began."""
    first = parts[0].provenance
    for rank, part in enumerate(parts[1:], start=1):
        for name in ("framework", "framework_version", "command", "git_commit"):
            ours, theirs = getattr(first, name), getattr(part.provenance, name)
            if name == "command":
                # Launchers may give each process arguments of its own (--local_rank).
                ours, theirs = _program(ours), _program(theirs)
            if ours and theirs and ours != theirs:
                raise RecordingError(
                    f"{source}: rank {rank} is of another run than rank 0: its {name.replace('_', ' ')} is {theirs!r}, "
                    f"that of rank 0 {ours!r}. Record all ranks in one run."
                )
        apart = _seconds_apart(first.time, part.provenance.time)
        if apart > _START_TOGETHER:
            other = ", and from other weights" if first.weights_hash != part.provenance.weights_hash else ""
            raise RecordingError(
                f"{source}: rank {rank} is of another run than rank 0: it began {apart / 60:.0f} minutes apart{other} "
                f"({first.time} and {part.provenance.time}). Delete what an earlier run left, and record again."
            )


def _program(command: str) -> str:
    return Path(command.split(" ")[0]).name


def _seconds_apart(ours: str, theirs: str) -> float:
    try:
        return abs((datetime.fromisoformat(theirs) - datetime.fromisoformat(ours)).total_seconds())
    except (ValueError, TypeError):
        # Parts made by hand do not say when.
        return 0.0


def _be(ranks: Sized) -> str:
    return "is" if len(ranks) == 1 else "are"


def ranks_in_words(ranks: Sequence[int], most: int = 20) -> str:
    """The ranks in words: `rank 1`, `ranks 0, 1 and 4`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = list(map(str, ranks[:most]))
    last = shown.pop() if len(ranks) <= most else f"{len(ranks) - most} more"
    return f"ranks {', '.join(shown)} and {last}"


def same(ours: Entry, theirs: Entry) -> bool:
    """Whether two ranks recorded the same bits."""
    return digest(ours) == digest(theirs) != ""


def digest(entry: Entry) -> str:
    """The content hash of an entry; '' when neither it nor the values were recorded."""
    if entry.hash or entry.detail != "full":
        return entry.hash
    if entry.dtype == "object":
        return repr(entry.array().tolist())
    return content_hash(np.asarray(entry.array(), order="C"))


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
