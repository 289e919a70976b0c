"""diagnose: hypotheses about known causes, and doubts about passes that prove nothing."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.engine import find
from reprod_log.diagnose.finding import Finding, Fix, ranked, told

__all__ = ["Case", "Finding", "Fix", "diagnose", "diagnose_again", "ranked"]


def diagnose(case: Case) -> tuple[Finding, ...]:
    """What the hypotheses find, the surest causes first."""
    # An alignment that is only read and shown needs none of them.
    from reprod_log.diagnose.hypotheses import HYPOTHESES

    found = find(HYPOTHESES, case)
    if _needs_live_models(case) and not any(one.kind == "cause" for one in found):
        found.append(told("cause.recorded_only"))
    return ranked(found)


def _needs_live_models(case: Case) -> bool:
    """Whether two scripts were recorded whose layers are known, so that live models would tell more."""
    if case.recorded is None or case.recorded.joined or not case.failed:
        return False
    sides = case.recorded.reference, case.recorded.candidate
    return all(one.source and one.modules and not any(run.startswith("isolated") for run in one.runs) for one in sides)


def diagnose_again(case: Case, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings of a case that another policy judged: doubts look at the numbers anew, what needs data stays."""
    from reprod_log.diagnose.hypotheses.doubts import HYPOTHESES

    again = [one for one in HYPOTHESES if not one.where.data]
    rules = {one.rule for one in again}
    return ranked([*(one for one in findings if one.rule not in rules), *find(again, case)])
