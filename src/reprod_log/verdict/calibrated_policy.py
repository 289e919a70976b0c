"""CalibratedPolicy: how many rounding floors an error may have, tier by tier, with the evidence for each number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from reprod_log.verdict.patterns import patterns


@dataclass(frozen=True)
class CalibratedPolicy:
    """How many noise floors an error may have. Beside each: the largest of correct ports / the smallest of defects."""

    isolated: float = 3.0
    """0.07 (1.83 in a survey of single operators) / 3.8."""
    free: float = 10.0
    """4.0 (all of it one framework's 1e-6 in gradient clipping; 0.08 without) / 112."""
    precision: float = 300.0
    """31 / 731."""
    without_float64: float = 30.0
    """The precision tier when the candidate cannot run in float64; kernels of low quality come near it."""
    suspect: float = 1e-7
    """Relative error in isolation, in float64, from which a passing layer is worth a look: another tiny constant."""
    noise_only: float = 0.05
    """A tensor whose own rounding is this share of it is rounding (true value 0) and not held to relative errors."""
    kink: float = 0.1
    """The largest share of a gradient that an activation on the other side of zero may move; 0.059 was seen."""
    lr: float = 1e-9
    """Learning rates are Python floats: they agree to this share of the largest rate, whatever the precision."""
    default: float = 300.0
    """Factor on the assumed floor when nothing was measured: weak, and said so."""
    allow_unmatched: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    """Patterns of keys whose difference is known and accepted; they pass and say so."""
    allow_incomplete: bool = False
    """Whether a recording that was cut short may pass with what it has."""
    equal_nan: bool = False
    name: str = "calibrated"

    def __post_init__(self) -> None:
        for name in ("allow_unmatched", "accept"):
            object.__setattr__(self, name, patterns(getattr(self, name), name=name))

    def allows_unmatched(self, key: str) -> bool:
        return any(fnmatchcase(key, pattern) for pattern in self.allow_unmatched)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CalibratedPolicy:
        values = dict(data)
        values["allow_unmatched"] = tuple(values.get("allow_unmatched", ()))
        values["accept"] = tuple(values.get("accept", ()))
        return cls(**values)
