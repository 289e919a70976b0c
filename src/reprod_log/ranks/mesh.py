"""Mesh: where each rank stands on the named axes of a parallel run, such as data-parallel × tensor-parallel.

Along a batch axis (dp, dp_shard, fsdp, data …) each rank is fed its own part of the batch and gradients are reduced;
along any other (tp, sp, mp …) all ranks are fed the same and layers are split.

Dims declare how the shards of a tensor lie on these axes, in a string such as "b s h[tp] d": one name for each dim. The
dim with a mark in brackets is cut into pieces, one on each rank along the axis of that name, in their order; the others
are whole everywhere. No mark: every rank has all of it. A mark such as [dp] means that the pieces are parts of the
batch, any other ([tp], [sp] …) that a layer is split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from math import prod

from reprod_log.errors import RecordingError, UsageError, listed, near_names
from reprod_log.ranks.opening import AXIS_NAME
from reprod_log.recording import Entry, Key, Recording
from reprod_log.recording.shards import UNNAMED, Axis, is_batch, places_of


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

    @property
    def sizes(self) -> str:
        """The axes with their sizes: `dp 2 × tp 2`."""
        return _sizes(self.axes)

    def where(self, rank: int) -> str:
        """The place of a rank in words: `dp 1, tp 0`."""
        return self.place_of(self.coordinates[rank])

    def place_of(self, coordinates: Sequence[int]) -> str:
        return ", ".join(f"{axis.name} {place}" for axis, place in zip(self.axes, coordinates, strict=True))


def declared_mesh(sizes: Mapping[str, int], ranks: int, source: str) -> Mesh:
    """The mesh that the user declares by the sizes of its axes, the outermost first."""
    wrong = [name for name, size in sizes.items() if not AXIS_NAME.fullmatch(name) or size < 1]
    if wrong or not sizes:
        raise UsageError(f"cannot use the mesh {dict(sizes)}: give axes with names and sizes, e.g. dp=2,tp=2")
    axes = [Axis.named(name, size) for name, size in sizes.items()]
    total = prod(sizes.values())
    if total != ranks:
        raise UsageError(f"{source}: the mesh {_sizes(axes)} has {total} places, but there are {ranks} ranks")
    return Mesh.ordered(axes)


def recorded_mesh(parts: Sequence[Recording], source: str) -> Mesh | None:
    """The mesh that the parts know of themselves; None when they say nothing."""
    known = [places_of(part.provenance.extra) for part in parts]
    if not any(known):
        return None
    axes = [tuple(place.axis for place in places) for places in known]
    for rank, one in enumerate(axes):
        if one != axes[0]:
            raise RecordingError(
                f"{source}: rank {rank} knows {_described(one)}, rank 0 {_described(axes[0])}. Record all ranks with "
                "the same mesh, or declare it with --mesh."
            )
    mesh = Mesh(axes[0], tuple(tuple(place.index for place in places) for places in known))
    for rank, where in enumerate(mesh.coordinates):
        first = mesh.coordinates.index(where)
        if first != rank:
            raise RecordingError(f"{source}: rank {rank} and rank {first} both have the place {mesh.place_of(where)}")
    if prod(axis.size for axis in mesh.axes) != len(parts):
        raise RecordingError(f"{source}: {_described(mesh.axes)} is not one of {len(parts)} ranks")
    return mesh


def missing_places(parts: Sequence[Recording]) -> Iterator[str]:
    """The places of a mesh that no part has, in words, when the parts know where they stand."""
    known = [places_of(part.provenance.extra) for part in parts]
    axes = {tuple(place.axis for place in places) for places in known}
    if len(axes) == 1 and all(known):
        mesh = Mesh.ordered(next(iter(axes)))
        taken = {tuple(place.index for place in places) for places in known}
        yield from (mesh.place_of(where) for where in mesh.coordinates if where not in taken)


def unknown_axis(mark: str, mesh: Mesh) -> UsageError:
    return UsageError(
        f"there is no axis {mark!r} in this run; it has {listed([axis.name for axis in mesh.axes])}. Record with "
        "watch(mesh=…), or declare the axes with --mesh."
    )


def _described(axes: Sequence[Axis]) -> str:
    return f"a mesh of {_sizes(axes)}" if axes else "no mesh"


def _sizes(axes: Sequence[Axis]) -> str:
    return " × ".join(f"{axis.name} {axis.size}" for axis in axes)


BATCH = "dp"
_PIPELINE = ("pp", "pipe", "pipeline", "stage")
_DIM = re.compile(r"(?P<name>[A-Za-z0-9_]+)(?:\[(?P<mark>[A-Za-z]\w*)\])?")


@dataclass(frozen=True)
class Dims:
    """A dims string, read."""

    text: str
    names: tuple[str, ...]
    marks: tuple[tuple[str, int], ...] = ()
    """The axes of the run with the dim that is cut along each."""

    @classmethod
    def parse(cls, text: str) -> Dims:
        found = [_DIM.fullmatch(word) for word in text.split()]
        names = [one["name"] for one in found if one is not None]
        if not found or len(names) < len(found) or len(set(names)) < len(names):
            raise UsageError(
                f"cannot read the dims {text!r}: write one name for each dim, with the name of the parallel axis in "
                'brackets behind the one that is split, e.g. "b s h[tp] d"'
            )
        marks = tuple((one["mark"], dim) for dim, one in enumerate(found) if one is not None and one["mark"])
        if len({mark for mark, _ in marks}) < len(marks):
            raise UsageError(f"the dims {text!r} split two dims along the same axis; shards lie along one of them only")
        return cls(text, tuple(names), marks)

    def check(self, shards: Sequence[Entry], ranks: Sequence[int]) -> None:
        """Raise unless these shards, those of the ranks along the marked axes, tile a tensor of these dims."""
        key, shapes = str(shards[0].key), [list(shard.shape) for shard in shards]
        if len(self.names) != len(shapes[0]):
            raise UsageError(
                f"the dims {self.text!r} name {len(self.names)} axes, but {key!r} has shape {shapes[0]} on rank "
                f"{ranks[0]}"
            )
        cut = {dim for _, dim in self.marks}
        for rank, shape in zip(ranks, shapes, strict=True):
            wrong = [
                name
                for dim, name in enumerate(self.names)
                if dim not in cut and shape[dim : dim + 1] != shapes[0][dim : dim + 1]
            ]
            if wrong or len(shape) != len(shapes[0]):
                raise RecordingError(
                    f"the shards of {key!r} do not tile: with the dims {self.text!r} all ranks must agree in "
                    f"{listed(wrong or self.names)}, but rank {ranks[0]} has shape {shapes[0]} and "
                    f"rank {rank} {shape}"
                )
        kinds = {shard.dtype for shard in shards}
        if len(kinds) > 1:
            raise RecordingError(f"the shards of {key!r} have different dtypes: {listed(sorted(kinds))}")


@dataclass(frozen=True)
class DeclaredDims:
    """The dims of a recording's entries, by patterns; of several that fit an entry the last holds."""

    rules: tuple[tuple[str, Dims], ...] = ()

    @classmethod
    def of(cls, dims: Mapping[str, str] | None) -> DeclaredDims:
        return cls(tuple((pattern, Dims.parse(text)) for pattern, text in (dims or {}).items()))

    def mesh(self, known: Mesh | None, size: int) -> Mesh:
        """The mesh of a run. When it does not know its own there is one axis: that of the batch, unless a layer is
        declared to be split.
        """
        marks = dict.fromkeys(mark for _, dims in self.rules for mark, _ in dims.marks)
        if known is None:
            split = [mark for mark in marks if not is_batch(mark)]
            return Mesh.ordered([Axis(split[0] if split else BATCH, size, batch=not split)])
        stages = [axis.name for axis in known.axes if axis.name in _PIPELINE]
        if stages:
            raise UsageError(
                f"the ranks along {stages[0]!r} are stages of a pipeline: each has other layers, and they cannot be "
                "put together. Compare the part of one rank of each stage (…/rank0, an ordinary recording) by itself."
            )
        for mark in marks:
            if known.axis(mark) is None and (known.is_grid or known.axes[0].name != UNNAMED):
                raise unknown_axis(mark, known)
        return known

    def dims(self, key: Key) -> Dims | None:
        """What is declared for this entry."""
        return next((one for pattern, one in reversed(self.rules) if _fits(pattern, key)), None)

    def check_used(self, keys: Sequence[Key]) -> None:
        """Raise if a pattern fits nothing: it is mistyped."""
        for pattern, _ in self.rules:
            if not any(_fits(pattern, key) for key in keys):
                near = near_names(pattern, dict.fromkeys(key.path for key in keys))
                hint = f" Near names: {listed(near)}." if near else ""
                raise UsageError(f"no entry fits the pattern {pattern!r} of the dims.{hint}")


def _fits(pattern: str, key: Key) -> bool:
    """Whether a pattern means this entry: its key, a parameter's path, or a layer's path, which means its outputs."""
    if fnmatchcase(str(key), pattern):
        return True
    path, colon, role = pattern.partition(":")
    if not fnmatchcase(key.path, path):
        return False
    if colon:
        return fnmatchcase(key.role, role)
    return key.phase not in ("forward", "backward") or key.role.startswith("output")
