"""Program: what one pass of a recording ran. Passes of one recording must be of one program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from reprod_log.recording.recording import Recording

FACT = "passes"
"""Where a provenance keeps the program of each pass, by the name of the pass."""


@dataclass(frozen=True)
class Program:
    """A script with everything that decides what it computes. Contents and values are kept as hashes."""

    script: str = ""
    """The content of the script."""
    arguments: tuple[str, ...] = ()
    framework: str = ""
    """Its name and version."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """The content of each module of the user's own that was imported, by its name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the script or its framework reads; '' for one that is not set."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Switches of the framework, and the settings of layers and optimizers, under dotted names."""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "arguments": list(self.arguments)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Program:
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**{**known, "arguments": tuple(known.get("arguments", ()))})

    def differences(self, other: Program) -> dict[str, tuple[Any, Any]]:
        """What differs, by its name, with both values; what only one of them knows is no difference."""
        found: dict[str, tuple[Any, Any]] = {}
        for name in ("script", "framework"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours and theirs and ours != theirs:
                found[name] = ours, theirs
        if self.script and other.script and self.arguments != other.arguments:
            found["arguments"] = " ".join(self.arguments), " ".join(other.arguments)
        for kind in ("modules", "environment", "settings"):
            ours, theirs = getattr(self, kind), getattr(other, kind)
            word = kind.removesuffix("s") if kind == "modules" else kind
            found |= {
                f"{word} {name}": (ours[name], theirs[name])
                for name in ours
                if name in theirs and ours[name] != theirs[name]
            }
        return found


def programs_of(recording: Recording) -> dict[str, Program]:
    """The program of each pass, as far as it was recorded."""
    known = recording.provenance.extra.get(FACT, {})
    if not isinstance(known, Mapping):
        return {}
    return {str(run): Program.from_dict(one) for run, one in known.items() if isinstance(one, Mapping)}


def differing_passes(recording: Recording) -> tuple[str, ...]:
    """What differs between the programs of the passes of a recording, by its name."""
    first, *others = list(programs_of(recording).values()) or [Program()]
    return tuple(dict.fromkeys(name for other in others for name in first.differences(other)))
