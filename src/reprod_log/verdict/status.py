"""Status: what can be said of an entry, and of a whole comparison."""

from __future__ import annotations

from enum import Enum


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
    NOTHING = "NOTHING"
    """Nothing was compared. Only a whole comparison can have this status."""

    def __str__(self) -> str:
        return self.value

    @property
    def passed(self) -> bool:
        return self in (Status.PASS, Status.ACCEPTED, Status.SUSPECT)
