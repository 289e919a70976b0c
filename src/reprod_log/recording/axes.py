"""Axes: the named axes that the processes of a parallel run lie on, and the place of one process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprod_log.errors import RecordingError

FACT = "mesh"
"""Its name in a recording's provenance."""
UNNAMED = "axis0"
"""What the first axis of a mesh without names is called."""
_BATCH = re.compile(r"d?dp(_\w+)?|fsdp|hsdp|data(_parallel)?|batch|sharding|replicate|shard")


@dataclass(frozen=True)
class Axis:
    """One named axis."""

    name: str
    size: int
    batch: bool
    """Whether the processes along it have parts of the batch; otherwise they share the work of layers."""

    @classmethod
    def named(cls, name: str, size: int) -> Axis:
        """An axis whose name says what it is for."""
        return cls(name, size, is_batch(name))


@dataclass(frozen=True)
class MeshPlace:
    """Where a process stands on an axis."""

    axis: Axis
    index: int

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.axis.name, "size": self.axis.size, "batch": self.axis.batch, "index": self.index}

    @classmethod
    def from_dict(cls, fact: Mapping[str, Any]) -> MeshPlace:
        axis = Axis(str(fact["name"]), int(fact["size"]), bool(fact["batch"]))
        return cls(axis, int(fact["index"]))


def is_batch(name: str) -> bool:
    """Whether an axis of this name is one of the batch: dp, dp_shard, fsdp, data …"""
    return _BATCH.fullmatch(name) is not None


def counted_through(sizes: Mapping[str, int], rank: int) -> tuple[MeshPlace, ...]:
    """The place of a rank when ranks are counted through, the last axis fastest."""
    found: list[MeshPlace] = []
    for name, size in reversed(list(sizes.items())):
        found.insert(0, MeshPlace(Axis.named(name, size), rank % size))
        rank //= size
    return tuple(found)


def places_of(provenance_extra: Mapping[str, Any]) -> tuple[MeshPlace, ...]:
    """Where a recorded process stood; () when it did not know."""
    facts: Sequence[Mapping[str, Any]] = provenance_extra.get(FACT) or ()
    try:
        return tuple(MeshPlace.from_dict(fact) for fact in facts)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingError(f"cannot read the place of a process on its mesh: {facts!r} ({error!r})") from error
