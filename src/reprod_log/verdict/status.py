"""Status: the result for an entry or a whole comparison; Basis: what a judgement rests on."""

from __future__ import annotations

from enum import Enum

from reprod_log.messages import Message


class Status(str, Enum):
    """PASS is earned; everything else has its own word."""

    PASS = "PASS"
    ACCEPTED = "ACCEPTED"
    """It differs, and the policy says that this is known: it does not stand in the way, and is shown."""
    SUSPECT = "SUSPECT"
    """Within the limit, but not explained by rounding: it passes, and is shown."""
    PRECISION = "PRECISION"
    """The same function, computed with less precision."""
    FAIL = "FAIL"
    UNMATCHED = "UNMATCHED"
    """Present on one side only."""
    INCOMPARABLE = "INCOMPARABLE"
    """Both are there, but shapes or kinds forbid comparing them."""
    INCOMPLETE = "INCOMPLETE"
    """What was compared agrees, but a recording was cut short: the rest is not known. Only of a whole comparison."""
    UNPROVEN = "UNPROVEN"
    """All passes, but could not have failed, or the evidence contradicts itself. Only of a whole comparison."""
    NOTHING = "NOTHING"
    """Nothing was compared. Only a whole comparison can have this status."""

    def __str__(self) -> str:
        return self.value

    @property
    def passed(self) -> bool:
        return self in (Status.PASS, Status.ACCEPTED, Status.SUSPECT)


class Basis(str, Enum):
    """What a judgement stands on; the value is its name in saved alignments."""

    FIXED_LIMIT = "fixed limit"
    BOTH_FLOAT64 = "both in float64"
    REFERENCE_FLOAT64 = "reference in float64"
    REPEATS = "repeats of the reference"
    ASSUMED = "assumed rounding; record a float64 run of the reference for a real floor"
    SKETCHES = "estimate from sketches"
    STATISTICS = "estimate from statistics"
    INPUTS = "inputs, bit for bit"
    EXACT = "exact kind"
    LEARNING_RATE = "learning rate in float64"
    NONE = "none"

    def __str__(self) -> str:
        return self.value

    @property
    def message(self) -> Message:
        return Message(f"basis.{self.name.lower()}")

    @property
    def is_estimate(self) -> bool:
        return self in (Basis.SKETCHES, Basis.STATISTICS)
