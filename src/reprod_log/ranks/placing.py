"""Placing: how the parts of one entry lie along the axes of a run, and the whole that they make together.

Recorded: a tensor that knows how it is distributed (a DTensor, a dist tensor, FSDP's pieces).
Declared: the user's dims. Usual: along a batch axis batches and activations are cut along the batch and losses are
averaged; everything else is the same everywhere. Data is read when an entry is asked for, and only then put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from reprod_log.errors import RecordingError, UsageError
from reprod_log.layers.arrangement import batch_first, has_states, is_sequence, is_sequence_role
from reprod_log.layers.lookup import running_statistics
from reprod_log.ranks.mesh import DeclaredDims, Dims, Mesh
from reprod_log.ranks.parts import Group, Ranks, same
from reprod_log.recording import Array, Entry, Key, ModuleInfo, Recording
from reprod_log.recording.entry import no_values
from reprod_log.recording.shards import SHARD_FACT, Shard, shard_of
from reprod_log.recording.summary import joined as joined_summary


def of_rank(key: Key, rank: int) -> Key:
    """The key under which a rank's own version of an entry stands beside that of rank 0."""
    if not key.phase:
        return replace(key, path=f"{key.path}.rank{rank}")
    return replace(key, role=f"{key.role}.rank{rank}" if key.role else f"rank{rank}")


def batch_axis(entry: Entry, module: ModuleInfo | None) -> int:
    """The axis of the samples: the first, unless the layer itself says otherwise."""
    if module is None or len(entry.shape) != 3 or not is_sequence(module):
        return 0
    if is_sequence_role(module, entry.key.role):
        return 0 if batch_first(module) else 1
    # The states of a recurrent layer are layers × batch × features, whatever its sequence is.
    return 1 if has_states(module) else 0


def parameter_shapes(recording: Recording) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter by its path."""
    return {
        f"{module.path}.{name}" if module.path else name: tuple(shape)
        for module in recording.modules
        for name, shape in module.parameters.items()
    }


def is_split(entry: Entry, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether declared dims hold for an entry: not for single numbers, nor for counters kept beside a parameter."""
    if not entry.shape:
        return False
    return entry.key.phase != "optimizer" or entry.shape == shapes.get(entry.key.path, entry.shape)


def statistics_of(recording: Recording) -> dict[str, ModuleInfo]:
    """The paths of all running means and variances, with the batch norm they belong to."""
    return {
        f"{module.path}.{name}": module for module in recording.modules for name in running_statistics(module).values()
    }


def has_pieces(part: Recording) -> bool:
    """Whether a rank has parameters only in pieces."""
    return any(shard_of(entry.meta) is not None for entry in part.entries if entry.key.phase == "parameter")


def other_weights(group: Group) -> list[int]:
    """The ranks of a group that began with other weights than its first.

    Of weights that lie in pieces along it the hashes differ and tell nothing.
    """
    if has_pieces(group.parts[0]):
        return []
    hashes = [part.provenance.weights_hash for part in group.parts]
    return [rank for rank, one in zip(group.numbers, hashes, strict=True) if one and hashes[0] and one != hashes[0]]


_ACTIVATIONS = ("data", "forward", "backward")
_NUMBERS = ("loss", "metric")
Parts = tuple[Entry, ...]
"""One entry of every rank."""


@dataclass(frozen=True)
class Placed:
    """What to do with the parts of an entry along each axis; axes are numbers into those of the mesh."""

    same: tuple[int, ...] = ()
    """Every rank along these should have the same."""
    cuts: tuple[tuple[int, int], ...] = ()
    """Axis and dim of each cut, in the order in which the whole was cut; those that the parts know come last."""
    summed: tuple[int, ...] = ()
    averaged: tuple[int, ...] = ()
    divided: int = 1
    """By how much the whole is divided: the loss of one process is the mean of the ranks'."""
    shard: Shard | None = None
    """What the parts themselves know."""

    @property
    def cut_axes(self) -> tuple[int, ...]:
        return tuple(axis for axis, _ in self.cuts)


class Placing:
    """Knows how each entry of a run lies on its ranks."""

    def __init__(self, ranks: Ranks, layout: DeclaredDims, mesh: Mesh) -> None:
        self._layout, self.mesh = layout, mesh
        self._modules = {module.path: module for module in ranks.parts[0].modules}
        self._shapes = parameter_shapes(ranks.parts[0])
        self.batches = _batch_sizes(ranks)

    def of(self, parts: Parts) -> Placed:
        """How these parts lie; raises for declared dims that they cannot have."""
        shard = shard_of(parts[0].meta)
        if shard is not None:
            return self._recorded(parts, shard)
        dims = self._layout.dims(parts[0].key)
        if dims is not None and is_split(parts[0], self._shapes):
            return self._declared(parts, dims)
        return self._usual(parts, self.mesh.batch)

    def _recorded(self, parts: Parts, shard: Shard) -> Placed:
        self._check_one_way(parts, shard)
        rest = tuple(axis for axis in self.mesh.batch if self.mesh.axes[axis].name not in shard.axes)
        usual = self._usual(parts, rest)
        cuts = (*usual.cuts, *((self._place(name, parts), dim) for name, dim in shard.cuts))
        summed = tuple(self._place(name, parts) for name in shard.summed)
        averaged = (*usual.averaged, *(self._place(name, parts) for name in shard.averaged))
        return self._rest_is_same(cuts, summed, averaged, divided=usual.divided, shard=shard)

    def _check_one_way(self, parts: Parts, shard: Shard) -> None:
        """Raise unless all parts are of the same kind, and those that make a whole together of the same whole."""
        along = tuple(axis for axis, one in enumerate(self.mesh.axes) if one.name in shard.axes)
        for ranks in self.mesh.groups(*along):
            # Beside the axes that it knows, batches may differ in size.
            expected = replace(shard, whole=getattr(shard_of(parts[ranks[0]].meta), "whole", ()))
            for rank in ranks:
                other = shard_of(parts[rank].meta)
                if other != expected:
                    raise RecordingError(
                        f"{str(parts[0].key)!r} lies on the ranks in two ways: rank {ranks[0]} has "
                        f"{expected.description}, "
                        f"rank {rank} {'all of it' if other is None else other.description}. "
                        "Distribute it in the same way on every rank."
                    )

    def _declared(self, parts: Parts, dims: Dims) -> Placed:
        cuts = tuple(sorted((self.mesh.axis(mark) or 0, dim) for mark, dim in dims.marks))
        marked = tuple(axis for axis, _ in cuts)
        if len(set(marked)) < len(marked):
            raise UsageError(
                f"the dims {dims.text!r} split {len(marked)} dims, but the ranks lie on one axis. Declare their axes "
                "with --mesh, e.g. --mesh dp=2,tp=2."
            )
        for ranks in self.mesh.groups(*marked) if marked else (tuple(range(len(parts))),):
            dims.check([parts[rank] for rank in ranks], ranks)
        if not dims.marks:
            return self._rest_is_same(())
        usual = self._usual(parts, tuple(axis for axis in self.mesh.batch if axis not in marked))
        return self._rest_is_same(
            tuple(sorted((*usual.cuts, *cuts))),
            averaged=usual.averaged,
            divided=usual.divided * self._share(parts, cuts),
        )

    def _usual(self, parts: Parts, along: tuple[int, ...]) -> Placed:
        """Data-parallel along these axes; the same along the others."""
        key, first = parts[0].key, parts[0]
        averaged = key.phase in _NUMBERS or (not first.shape and key.phase in (*_ACTIVATIONS, ""))
        if averaged and first.dtype.startswith(("float", "bfloat", "complex")):
            return self._rest_is_same((), averaged=along)
        dim = self._batch_dim(parts, along)
        cuts = () if dim is None else tuple((axis, dim) for axis in along)
        return self._rest_is_same(cuts, divided=self._share(parts, cuts))

    def _share(self, parts: Parts, cuts: tuple[tuple[int, int], ...]) -> int:
        """How many ranks' losses a gradient of an activation is a share of."""
        share = 1
        for axis, _ in cuts:
            if parts[0].key.phase == "backward" and self.mesh.axes[axis].batch:
                share *= self.mesh.axes[axis].size
        return share

    def _batch_dim(self, parts: Parts, along: tuple[int, ...]) -> int | None:
        """The dim along which the ranks' batches lie; None for what does not belong to samples."""
        first = parts[0]
        if first.key.phase not in (*_ACTIVATIONS, "") or not first.shape or not along:
            return None
        dim = batch_axis(first, self._modules.get(first.key.path))
        sizes = self.batches.get((first.key.run, first.key.step))
        if sizes is not None and tuple(part.shape[dim] for part in parts) == sizes:
            return dim
        # Tables of positions and the like: the same on every rank, whatever it is fed.
        groups = self.mesh.groups(*along)
        alike = all(same(parts[ranks[0]], parts[rank]) for ranks in groups for rank in ranks[1:])
        return None if alike else dim

    def _rest_is_same(
        self,
        cuts: tuple[tuple[int, int], ...],
        summed: tuple[int, ...] = (),
        averaged: tuple[int, ...] = (),
        *,
        divided: int = 1,
        shard: Shard | None = None,
    ) -> Placed:
        other = {*(axis for axis, _ in cuts), *summed, *averaged}
        rest = tuple(axis for axis in range(len(self.mesh.axes)) if axis not in other)
        return Placed(rest, cuts, summed, averaged, divided, shard)

    def _place(self, name: str, parts: Parts) -> int:
        place = self.mesh.axis(name)
        if place is None:
            known = ", ".join(axis.name for axis in self.mesh.axes)
            raise RecordingError(
                f"{str(parts[0].key)!r} is distributed along {name!r}, which is not an axis of this run ({known}). "
                "Give watch(mesh=…) the mesh that all tensors lie on."
            )
        return place


def _batch_sizes(ranks: Ranks) -> Mapping[tuple[str, int | None], tuple[int, ...]]:
    """The size of every rank's batch for each pass and step: of the first input, else of the model's output."""
    found: dict[tuple[str, int | None], tuple[int, ...]] = {}
    for phase, path in (("data", None), ("forward", "")):
        for key in ranks.keys:
            if key.phase == phase and (path is None or (key.path == path and key.role.startswith("output"))):
                shapes: list[Any] = [entry.shape for entry in ranks.entries(key)]
                if all(shapes):
                    found.setdefault((key.run, key.step), tuple(shape[0] for shape in shapes))
    return found


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
        """The wholes in the shapes that their parts describe, when they are complete."""
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
    filled = [part for part in parts if prod(part.shape)]
    if len({part.shape for part in filled}) == 1 and all("summary" in part.meta for part in filled):
        # A sketch of a whole cannot be made from sketches of its pieces; its statistics can.
        whole = joined_summary([part.meta["summary"] for part in filled])
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
    """The entry, checked to be the whole that its parts describe."""
    if shard.flat and entry.shape == (prod(shard.whole),):
        return replace(_plain(entry), shape=shard.whole, read=lambda: entry.read().reshape(shard.whole))
    if entry.shape != shard.whole:
        raise RecordingError(
            f"the shards of {str(entry.key)!r} do not tile: together they have shape {list(entry.shape)}, but they are "
            f"{shard.description}"
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
