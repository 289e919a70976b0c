"""Shards: the named axes of a parallel run, the place of a process on them, and the tensors distributed over them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprod_log.errors import RecordingError
from reprod_log.recording.plain import Plain, from_plain

MESH_FACT = "mesh"
"""What the place of a process is called in a recording's provenance."""
UNNAMED = "axis0"
"""What the first axis of a mesh without names is called."""
_BATCH_AXIS = re.compile(r"d?dp(_\w+)?|fsdp|hsdp|data(_parallel)?|batch|sharding|replicate|shard")

SHARD_FACT = "shard"
"""What the distribution of a tensor is called among the facts beside an entry."""


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
        return cls(from_plain(Axis, fact), int(fact["index"]))


def is_batch(name: str) -> bool:
    """Whether an axis of this name is one of the batch: dp, dp_shard, fsdp, data …"""
    return _BATCH_AXIS.fullmatch(name) is not None


def counted_through(sizes: Mapping[str, int], rank: int) -> tuple[MeshPlace, ...]:
    """The place of a rank when ranks are counted through, the last axis fastest."""
    found: list[MeshPlace] = []
    for name, size in reversed(list(sizes.items())):
        found.insert(0, MeshPlace(Axis.named(name, size), rank % size))
        rank //= size
    return tuple(found)


def places_of(provenance_extra: Mapping[str, Any]) -> tuple[MeshPlace, ...]:
    """Where a recorded process stood; () when it did not know."""
    facts: Sequence[Mapping[str, Any]] = provenance_extra.get(MESH_FACT) or ()
    try:
        return tuple(MeshPlace.from_dict(fact) for fact in facts)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingError(f"cannot read the place of a process on its mesh: {facts!r} ({error!r})") from error


@dataclass(frozen=True)
class Shard(Plain):
    """How a tensor is distributed over the named axes of a run; the same on every rank."""

    whole: tuple[int, ...]
    """The shape of all parts together."""
    axes: tuple[str, ...]
    """All axes that it is distributed over; every rank has the same along those that are not named below."""
    cuts: tuple[tuple[str, int], ...] = ()
    """Axis and dim of each cut into pieces, in the order in which it was cut."""
    summed: tuple[str, ...] = ()
    """Along these the whole is the sum of the parts."""
    averaged: tuple[str, ...] = ()
    flat: bool = False
    """Whether the pieces are of the flattened tensor."""

    @property
    def description(self) -> str:
        """How it is distributed, for messages."""
        parts = [
            f"pieces along {axis} of {'the flattened tensor' if self.flat else f'dim {dim}'}" for axis, dim in self.cuts
        ]
        parts += [f"parts of a sum along {axis}" for axis in self.summed]
        parts += [f"parts of a mean along {axis}" for axis in self.averaged]
        return f"{' and '.join(parts) or 'copies'} of {list(self.whole)}"

    @staticmethod
    def brief() -> tuple[str, ...]:
        return "cuts", "summed", "averaged", "flat"


def shard_of(meta: Mapping[str, Any]) -> Shard | None:
    """What the facts beside an entry say of its distribution; None when it is not distributed."""
    fact = meta.get(SHARD_FACT)
    if fact is None:
        return None
    try:
        return Shard.from_dict(fact)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordingError(f"cannot read how an entry is distributed: {fact!r} ({error!r})") from error
