"""Finding: a named cause or a remark, with its evidence. Findings never change a verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from reprod_log.recording import Key

Confidence = Literal["proven", "consistent", "possible"]


@dataclass(frozen=True)
class Mend:
    """What a re-run can change to prove a cause: settings of one layer of the candidate, or its weights."""

    layer: str
    """The reference's path."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By the candidate's names; the values that would make it right."""
    weights: bool = False
    """Whether the reference's weights are to be given to it again."""


@dataclass(frozen=True)
class Finding:
    """What a rule found: the cause in words, the numbers that speak for it, and what to do."""

    rule: str
    """Name of the rule's file."""
    cause: str
    """One sentence a person can act on."""
    evidence: str
    confidence: Confidence = "possible"
    """proven: shown by a re-run with the mended setting; consistent: the numbers fit it and nothing else we know of."""
    advice: str = ""
    keys: tuple[Key, ...] = ()
    kind: Literal["cause", "suspicious pass", "remark"] = "cause"
    mends: tuple[Mend, ...] = ()
    """How a re-run with live models may prove it: one for each layer that it speaks of."""

    @property
    def without_names(self) -> str:
        """The cause with the names of its layers left out: the same mistake in other layers reads the same."""
        paths = {key.path for key in self.keys}
        names = paths | {path.rpartition(".")[0] for path in paths}
        # The longest first, since a layer's name is part of its parameters'.
        pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True) if name)
        # A layer called 0 is not the one in 0.001.
        return re.sub(rf"(?<![\w.])({pattern})(?!\w|\.\w)", "…", self.cause) if pattern else self.cause

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "keys": [str(key) for key in self.keys]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Finding:
        values = dict(data)
        values["keys"] = tuple(map(Key.parse, values.get("keys", ())))
        # Before 2026-11-16 a finding spoke of one layer, and had one mend or none.
        one = values.pop("mend", None)
        values["mends"] = tuple(Mend(**mend) for mend in values.get("mends", () if one is None else (one,)))
        return cls(**values)
