"""Dims: how the shards of a tensor lie on the ranks, declared in a string such as "b s h[tp] d".

One name for each dim. The dim with a mark in brackets is cut into pieces, one on each rank along the axis of that name,
in their order; the others are whole everywhere. No mark: every rank has all of it. A mark such as [dp] says that the
pieces are parts of the batch, any other ([tp], [sp] …) that a layer is split.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from reprod_log.errors import RecordingError, UsageError, listed, near_names
from reprod_log.ranks.mesh import Mesh, unknown_axis
from reprod_log.ranks.parts import Ranks
from reprod_log.recording import Entry, Key
from reprod_log.recording.shards import UNNAMED, Axis, is_batch

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

    def mesh(self, ranks: Ranks) -> Mesh:
        """The mesh of a run. When it does not know its own there is one axis: that of the batch, unless a layer is
        declared to be split.
        """
        marks = dict.fromkeys(mark for _, dims in self.rules for mark, _ in dims.marks)
        if ranks.mesh is None:
            split = [mark for mark in marks if not is_batch(mark)]
            return Mesh.ordered([Axis(split[0] if split else BATCH, ranks.size, batch=not split)])
        stages = [axis.name for axis in ranks.mesh.axes if axis.name in _PIPELINE]
        if stages:
            raise UsageError(
                f"the ranks along {stages[0]!r} are stages of a pipeline: each has other layers, and they cannot be "
                "put together. Compare the part of one rank of each stage (…/rank0, an ordinary recording) by itself."
            )
        for mark in marks:
            if ranks.mesh.axis(mark) is None and (ranks.mesh.is_grid or ranks.mesh.axes[0].name != UNNAMED):
                raise unknown_axis(mark, ranks.mesh)
        return ranks.mesh

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
