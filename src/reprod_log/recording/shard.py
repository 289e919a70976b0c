"""Shard: what a recorded tensor knows of the whole that it is a part of, when its framework has distributed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reprod_log.errors import RecordingError

FACT = "shard"
"""Its name among the facts beside an entry."""


@dataclass(frozen=True)
class Shard:
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
    def said(self) -> str:
        told = [
            f"pieces along {axis} of {'the flattened tensor' if self.flat else f'dim {dim}'}" for axis, dim in self.cuts
        ]
        told += [f"parts of a sum along {axis}" for axis in self.summed]
        told += [f"parts of a mean along {axis}" for axis in self.averaged]
        return f"{' and '.join(told) or 'copies'} of {list(self.whole)}"

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"whole": list(self.whole), "axes": list(self.axes)}
        if self.cuts:
            found["cuts"] = [[axis, dim] for axis, dim in self.cuts]
        if self.summed:
            found["summed"] = list(self.summed)
        if self.averaged:
            found["averaged"] = list(self.averaged)
        if self.flat:
            found["flat"] = True
        return found


def shard_of(meta: Mapping[str, Any]) -> Shard | None:
    """What the facts beside an entry say of its distribution; None when it is not distributed."""
    fact = meta.get(FACT)
    if fact is None:
        return None
    try:
        return Shard(
            whole=tuple(int(size) for size in fact["whole"]),
            axes=tuple(str(axis) for axis in fact["axes"]),
            cuts=tuple((str(axis), int(dim)) for axis, dim in fact.get("cuts", ())),
            summed=tuple(str(axis) for axis in fact.get("summed", ())),
            averaged=tuple(str(axis) for axis in fact.get("averaged", ())),
            flat=bool(fact.get("flat", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordingError(f"cannot read how an entry is distributed: {fact!r} ({error!r})") from error
