"""Side: one of two compared recordings, without its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from reprod_log.recording.provenance import Provenance
from reprod_log.recording.recording import Recording


@dataclass(frozen=True)
class Source:
    """What a report says about a recording: where it came from and whether it is whole."""

    source: str
    entries: int
    provenance: Provenance = field(default_factory=Provenance)
    complete: bool = True
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, recording: Recording) -> Source:
        return cls(recording.source, len(recording), recording.provenance, recording.complete, recording.notes)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "provenance": self.provenance.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Source:
        return cls(
            source=str(data["source"]),
            entries=int(data["entries"]),
            provenance=Provenance.from_dict(data["provenance"]),
            complete=bool(data["complete"]),
            notes=tuple(data["notes"]),
        )
