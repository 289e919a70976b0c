"""diagnose: hypotheses about known causes and about passes that prove nothing; they never change the verdict."""

from __future__ import annotations

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.engine import find
from reprod_log.diagnose.finding import Finding, Fix, ranked

__all__ = ["Case", "Finding", "Fix", "diagnose", "ranked"]


def diagnose(case: Case) -> tuple[Finding, ...]:
    """What the hypotheses find, the surest causes first."""
    # An alignment that is only read and shown needs none of them.
    from reprod_log.diagnose.hypotheses import HYPOTHESES

    return ranked(find(HYPOTHESES, case))
