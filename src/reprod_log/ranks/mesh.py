"""Mesh: where each rank stands on the named axes of a parallel run, such as data-parallel × tensor-parallel.

Along a batch axis (dp, dp_shard, fsdp, data …) each rank is fed its own part of the batch and gradients are reduced;
along any other (tp, sp, mp …) all ranks are fed the same and layers are split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from reprod_log.errors import RecordingError, UsageError, listed
from reprod_log.ranks.declared import AXIS_NAME
from reprod_log.recording import Recording
from reprod_log.recording.shards import Axis, places_of


@dataclass(frozen=True)
class Mesh:
    """The axes of a run, the outermost first, and each rank's place on them."""

    axes: tuple[Axis, ...]
    coordinates: tuple[tuple[int, ...], ...]

    @classmethod
    def ordered(cls, axes: Sequence[Axis]) -> Mesh:
        """Ranks counted through: along the last axis neighbours are next to each other."""
        return cls(tuple(axes), tuple(product(*(range(axis.size) for axis in axes))))

    @property
    def is_grid(self) -> bool:
        """Whether there is more than one axis, so that one has to say which is meant."""
        return len(self.axes) > 1

    @property
    def has_batch(self) -> bool:
        return any(axis.batch for axis in self.axes)

    def axis(self, name: str) -> int | None:
        return next((place for place, axis in enumerate(self.axes) if axis.name == name), None)

    def groups(self, *along: int) -> tuple[tuple[int, ...], ...]:
        """The ranks that differ in nothing but their places on these axes, in the order of those places."""
        found: dict[tuple[int, ...], list[int]] = {}
        for rank, where in enumerate(self.coordinates):
            rest = tuple(place for axis, place in enumerate(where) if axis not in along)
            found.setdefault(rest, []).append(rank)
        for ranks in found.values():
            ranks.sort(key=lambda rank: self.coordinates[rank])
        return tuple(tuple(ranks) for ranks in found.values())

    def places(self, wanted: Callable[[Axis], bool]) -> tuple[int, ...]:
        """Which of the axes are wanted."""
        return tuple(place for place, axis in enumerate(self.axes) if wanted(axis))

    @property
    def batch(self) -> tuple[int, ...]:
        return self.places(lambda axis: axis.batch)

    def named(self, along: Sequence[int]) -> str:
        """The axes in words; '' in a run of one axis, where there is nothing to tell apart."""
        return "×".join(self.axes[place].name for place in along) if self.is_grid else ""

    def where(self, rank: int) -> str:
        """The place of a rank in words: `dp 1, tp 0`."""
        return self.said(self.coordinates[rank])

    def said(self, coordinates: Sequence[int]) -> str:
        return ", ".join(f"{axis.name} {place}" for axis, place in zip(self.axes, coordinates, strict=True))


def declared_mesh(sizes: Mapping[str, int], ranks: int, source: str) -> Mesh:
    """The mesh that the user declares by the sizes of its axes, the outermost first."""
    wrong = [name for name, size in sizes.items() if not AXIS_NAME.fullmatch(name) or size < 1]
    if wrong or not sizes:
        raise UsageError(f"cannot use the mesh {dict(sizes)}: give axes with names and sizes, e.g. dp=2,tp=2")
    total = prod(sizes.values())
    if total != ranks:
        said = " × ".join(f"{name} {size}" for name, size in sizes.items())
        raise UsageError(f"{source}: the mesh {said} has {total} places, but there are {ranks} ranks")
    return Mesh.ordered([Axis.named(name, size) for name, size in sizes.items()])


def recorded_mesh(parts: Sequence[Recording], source: str) -> Mesh | None:
    """The mesh that the parts know of themselves; None when they say nothing."""
    known = [places_of(part.provenance.extra) for part in parts]
    if not any(known):
        return None
    axes = [tuple(place.axis for place in places) for places in known]
    for rank, one in enumerate(axes):
        if one != axes[0]:
            raise RecordingError(
                f"{source}: rank {rank} knows {_said(one)}, rank 0 {_said(axes[0])}. Record all ranks with the same "
                "mesh, or declare it with --mesh."
            )
    mesh = Mesh(axes[0], tuple(tuple(place.index for place in places) for places in known))
    for rank, where in enumerate(mesh.coordinates):
        first = mesh.coordinates.index(where)
        if first != rank:
            raise RecordingError(f"{source}: rank {rank} and rank {first} both have the place {mesh.said(where)}")
    if prod(axis.size for axis in mesh.axes) != len(parts):
        raise RecordingError(f"{source}: {_said(mesh.axes)} is not one of {len(parts)} ranks")
    return mesh


def missing_places(parts: Sequence[Recording]) -> Iterator[str]:
    """The places of a mesh that no part has, in words, when the parts know where they stand."""
    known = [places_of(part.provenance.extra) for part in parts]
    axes = {tuple(place.axis for place in places) for places in known}
    if len(axes) == 1 and all(known):
        mesh = Mesh.ordered(next(iter(axes)))
        taken = {tuple(place.index for place in places) for places in known}
        yield from (mesh.said(where) for where in mesh.coordinates if where not in taken)


def unknown_axis(mark: str, mesh: Mesh) -> UsageError:
    return UsageError(
        f"there is no axis {mark!r} in this run; it has {listed([axis.name for axis in mesh.axes])}. Record with "
        "watch(mesh=…), or declare the axes with --mesh."
    )


def _said(axes: Sequence[Axis]) -> str:
    return f"a mesh of {' × '.join(f'{axis.name} {axis.size}' for axis in axes)}" if axes else "no mesh"
