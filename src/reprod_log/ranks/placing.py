"""Placing: how the parts of one entry lie along the axes of a run, from what is recorded, declared or usual.

Recorded: a tensor that knows how it is distributed (torch's DTensor, paddle's dist tensor, FSDP's pieces).
Declared: the user's dims. Usual: along a batch axis batches and activations are cut along the batch and losses are
averaged; everything else is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reprod_log.errors import RecordingError, UsageError
from reprod_log.ranks.bits import same
from reprod_log.ranks.dims import DeclaredDims, Dims
from reprod_log.ranks.mesh import Mesh
from reprod_log.ranks.parts import Ranks
from reprod_log.ranks.roles import batch_axis, is_split, parameter_shapes
from reprod_log.recording import Entry
from reprod_log.recording.shards import Shard, shard_of

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
                        f"{str(parts[0].key)!r} lies on the ranks in two ways: rank {ranks[0]} has {expected.said}, "
                        f"rank {rank} {'all of it' if other is None else other.said}. Distribute it in the same way on "
                        "every rank."
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
                f"{str(parts[0].key)!r} is distributed along {name!r}, which is no axis of this run ({known}). Give "
                "watch(mesh=…) the mesh that all tensors lie on."
            )
        return place


def _batch_sizes(ranks: Ranks) -> Mapping[tuple[str, int | None], tuple[int, ...]]:
    """The size of every rank's batch for each pass and step: of the first input, else of the model's output."""
    found: dict[tuple[str, int | None], tuple[int, ...]] = {}
    for phase, path in (("data", None), ("forward", "")):
        for text in ranks.keys:
            key = ranks.parts[0][text].key
            if key.phase == phase and (path is None or (key.path == path and key.role.startswith("output"))):
                shapes: list[Any] = [entry.shape for entry in ranks.entries(text)]
                if all(shapes):
                    found.setdefault((key.run, key.step), tuple(shape[0] for shape in shapes))
    return found
