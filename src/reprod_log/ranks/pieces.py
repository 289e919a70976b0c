"""Pieces: the parts that the ranks have of one entry, put together along one axis after another.

Data is read when an entry is asked for, and only then put together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from reprod_log.errors import RecordingError
from reprod_log.ranks.mesh import Mesh
from reprod_log.ranks.placing import Parts, Placed
from reprod_log.recording import Array, Entry
from reprod_log.recording.entry import no_values
from reprod_log.recording.shards import SHARD_FACT, Shard, shard_of
from reprod_log.recording.summary import joined as joined_summary


def together(parts: Parts, placed: Placed, mesh: Mesh) -> Entry | None:
    """The whole that these parts of all ranks make; None when it would take values that were not recorded.

    Of what should be the same along an axis the first counts.
    """
    return along_axes(dict(enumerate(parts)), placed, mesh, tuple(range(len(mesh.axes))))


def along_axes(parts: dict[int, Entry], placed: Placed, mesh: Mesh, axes: tuple[int, ...]) -> Entry | None:
    """The same along some axes only, of the ranks that differ in their places on these."""
    pile = _Pile(mesh, parts)
    for axis in axes:
        if axis in placed.same:
            pile = pile.first(axis)
    for axis in axes:
        if axis in placed.summed or axis in placed.averaged:
            pile = pile.combined(axis, _reduction(np.sum if axis in placed.summed else np.mean))
    # What the parts know of themselves was cut last: their batch is a share already.
    own = len(placed.shard.cuts) if placed.shard is not None else 0
    for axis, dim in reversed(placed.cuts[len(placed.cuts) - own :]):
        if axis in axes:
            pile = pile.joined(axis, 0 if placed.shard is not None and placed.shard.flat else dim)
    if placed.shard is not None and pile.complete:
        complete = all(axis in axes for axis in placed.cut_axes[len(placed.cuts) - own :])
        pile = pile.shaped(parts, complete=complete)
    for axis, dim in reversed(placed.cuts[: len(placed.cuts) - own]):
        if axis in axes:
            pile = pile.joined(axis, dim)
    if not pile.complete:
        return None
    found = next(iter(pile.parts.values()))
    return found if placed.divided == 1 else _divided(found, placed.divided)


@dataclass(frozen=True)
class _Pile:
    """What is left of the parts after some axes, under the ranks that they began with."""

    mesh: Mesh
    parts: dict[int, Entry]
    complete: bool = True

    def first(self, axis: int) -> _Pile:
        lines = self._lines(axis)
        return replace(self, parts={ranks[0]: self.parts[ranks[0]] for ranks in lines})

    def combined(self, axis: int, combine: Callable[[Parts, tuple[int, ...]], Entry | None]) -> _Pile:
        left: dict[int, Entry] = {}
        complete = self.complete
        for ranks in self._lines(axis):
            one = combine(tuple(self.parts[rank] for rank in ranks), ranks)
            complete = complete and one is not None
            left[ranks[0]] = self.parts[ranks[0]] if one is None else one
        return _Pile(self.mesh, left, complete)

    def joined(self, axis: int, dim: int) -> _Pile:
        return self.combined(axis, lambda parts, ranks: _joined(parts, ranks, self.mesh, axis, dim))

    def shaped(self, known: dict[int, Entry], *, complete: bool) -> _Pile:
        """The wholes in the shapes that their parts speak of, when they are complete."""
        found = {}
        for rank, entry in self.parts.items():
            shard = shard_of(known[rank].meta)
            found[rank] = _shaped(entry, shard) if complete and shard is not None else _plain(entry)
        return replace(self, parts=found)

    def _lines(self, axis: int) -> list[tuple[int, ...]]:
        lines = (tuple(rank for rank in ranks if rank in self.parts) for ranks in self.mesh.groups(axis))
        return [ranks for ranks in lines if ranks]


def _joined(parts: Parts, ranks: tuple[int, ...], mesh: Mesh, axis: int, dim: int) -> Entry | None:
    first = parts[0]
    _check_tiles(parts, ranks, mesh, axis, dim)
    shape = (*first.shape[:dim], sum(part.shape[dim] for part in parts), *first.shape[dim + 1 :])
    if all(part.detail == "full" for part in parts):

        def read() -> Array:
            return np.concatenate([part.array() for part in parts], axis=dim)

        return replace(first, shape=shape, read=read, hash="", meta=_without_shard(first))
    told = [part for part in parts if prod(part.shape)]
    if len({part.shape for part in told}) == 1 and all("summary" in part.meta for part in told):
        # A sketch of a whole cannot be made from sketches of its pieces; its statistics can.
        whole = joined_summary([part.meta["summary"] for part in told])
        return replace(first, shape=shape, read=no_values, detail="summary", hash="", meta={"summary": whole})
    return None


def _reduction(reduce: Callable[..., Array]) -> Callable[[Parts, tuple[int, ...]], Entry | None]:
    def combine(parts: Parts, ranks: tuple[int, ...]) -> Entry | None:
        if any(part.detail != "full" for part in parts):
            return None

        def read() -> Array:
            arrays = [part.array() for part in parts]
            wide = np.complex128 if arrays[0].dtype.kind == "c" else np.float64
            found: Array = reduce(arrays, axis=0, dtype=wide).astype(arrays[0].dtype)
            return found

        return replace(parts[0], read=read, hash="", meta=_without_shard(parts[0]))

    return combine


def _divided(entry: Entry, share: int) -> Entry | None:
    if entry.detail != "full":
        return None

    def read() -> Array:
        whole = entry.array()
        return (whole / share).astype(whole.dtype)

    return replace(entry, read=read, hash="")


def _shaped(entry: Entry, shard: Shard) -> Entry:
    """The entry, checked to be the whole that its parts speak of."""
    if shard.flat and entry.shape == (prod(shard.whole),):
        return replace(_plain(entry), shape=shard.whole, read=lambda: entry.read().reshape(shard.whole))
    if entry.shape != shard.whole:
        raise RecordingError(
            f"the shards of {str(entry.key)!r} do not tile: together they have shape {list(entry.shape)}, but they are "
            f"{shard.said}"
        )
    return _plain(entry)


def _plain(entry: Entry) -> Entry:
    return replace(entry, meta=_without_shard(entry))


def _without_shard(entry: Entry) -> dict[str, object]:
    return {name: fact for name, fact in entry.meta.items() if name != SHARD_FACT}


def _check_tiles(parts: Parts, ranks: tuple[int, ...], mesh: Mesh, axis: int, dim: int) -> None:
    first = parts[0]
    along = f" of the ranks along {mesh.axes[axis].name}" if mesh.is_grid else ""
    for rank, part in zip(ranks, parts, strict=True):
        if part.dtype != first.dtype or (*part.shape[:dim], *part.shape[dim + 1 :]) != (
            *first.shape[:dim],
            *first.shape[dim + 1 :],
        ):
            mark = mesh.axes[axis].name
            raise RecordingError(
                f"the parts{along} of {str(first.key)!r} do not tile along dim {dim}: rank {ranks[0]} has "
                f"{first.dtype} {list(first.shape)}, rank {rank} {part.dtype} {list(part.shape)}. Declare their "
                f"dims, e.g. --dims '{first.key.path}=b[{mark}] …'."
            )
