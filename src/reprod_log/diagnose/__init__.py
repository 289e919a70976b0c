"""diagnose: hypotheses about known causes and about passes that prove nothing; they never change the verdict."""

from __future__ import annotations

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.engine import find
from reprod_log.diagnose.finding import Finding, Fix, ranked
from reprod_log.diagnose.hypotheses import HYPOTHESES

__all__ = ["Case", "Finding", "Fix", "diagnose", "ranked"]


def diagnose(case: Case) -> tuple[Finding, ...]:
    """What the hypotheses find, the surest causes first."""
    return ranked(find(HYPOTHESES, case))
