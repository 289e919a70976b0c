"""Engine: hypotheses as data, and what runs them over a case."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Confidence, Finding
from reprod_log.errors import ValuesNotRecorded
from reprod_log.verdict import CalibratedPolicy, Status


@dataclass(frozen=True)
class Where:
    """Which cases a hypothesis may speak about."""

    data: bool = True
    """The recordings themselves are at hand, not only what was measured."""
    compared: bool = True
    """Something was compared; where nothing was, nothing differs."""
    steps: int = 0
    """At least so many steps were recorded."""
    failures: bool = False
    """Something that was compared did not pass."""
    floor: bool = False
    """It is known what rounding alone does."""
    calibrated: bool | None = None
    """The calibrated rule judges, or does not."""
    joined: bool = False
    """A side was put together from the recordings of several ranks."""

    def holds(self, case: Case) -> bool:
        if self.data and (case.recorded is None or len(case.recorded.steps) < self.steps):
            return False
        if self.compared and case.verdict.status is Status.NOTHING:
            return False
        if self.joined and (case.recorded is None or not case.recorded.joined):
            return False
        if self.calibrated is not None and isinstance(case.policy, CalibratedPolicy) is not self.calibrated:
            return False
        return not (self.failures and not case.failed) and not (self.floor and case.floor is None)


@dataclass(frozen=True)
class Explains:
    """Findings of other hypotheses that a finding makes superfluous."""

    rules: frozenset[str]
    confidence: Confidence | None = None
    """Only findings of this confidence."""
    by: Confidence | None = None
    """Only when the finding itself is this sure."""
    same_layers: bool = False
    """Only findings about layers that fixes are for."""

    def covers(self, one: Finding, other: Finding, fixed: Collection[str]) -> bool:
        """Whether `one`, which explains, makes `other` superfluous; `fixed` are the layers that fixes are known for."""
        if other.rule not in self.rules or self.confidence not in (None, other.confidence):
            return False
        if self.by not in (None, one.confidence):
            return False
        paths = {key.path for key in other.keys}
        return not self.same_layers or (bool(paths) and paths <= set(fixed))


@dataclass(frozen=True)
class Hypothesis:
    """Something that is often the cause: where to look for it, and how.

    `look` reads numbers; on a healthy pair it finds nothing. Of its findings only a doubt changes a verdict.
    """

    rule: str
    look: Callable[[Case], Iterable[Finding]]
    where: Where = Where()
    explains: Mapping[str, tuple[Explains, ...]] = field(default_factory=dict)
    """By the rule of a finding: the findings of others that it makes superfluous."""


def find(hypotheses: Iterable[Hypothesis], case: Case) -> list[Finding]:
    """What the hypotheses that may speak about a case find, without what others of them explain."""
    found: list[Finding] = []
    explains: dict[str, tuple[Explains, ...]] = {}
    for one in hypotheses:
        if one.where.holds(case):
            explains.update(one.explains)
            # What needs values finds nothing where only sketches or statistics were recorded.
            with suppress(ValuesNotRecorded):
                found += one.look(case)
    return [one for one in unexplained(found, found, explains) if is_possible(one, case)]


def is_possible(finding: Finding, case: Case) -> bool:
    """Whether nothing that was measured contradicts a finding: what it says matches passed, what it blames did not."""
    judged = case.judgements
    if not all(key in judged and judged[key].status.passed for key in finding.agreeing):
        return False
    if finding.kind not in ("cause", "hint"):
        return True
    blamed = [judged[key] for key in finding.keys if key in judged]
    if blamed and all(one.status.passed for one in blamed):
        return False
    return case.verdict.status is not Status.PASS


def unexplained(
    findings: Sequence[Finding], by: Collection[Finding], explains: Mapping[str, tuple[Explains, ...]]
) -> list[Finding]:
    """The findings without those that others make superfluous; `explains` has by rule what a finding explains."""
    fixed = {fix.layer for one in by for fix in one.fixes}
    edges = [(one, edge) for one in by for edge in explains.get(one.rule, ())]
    return [
        other
        for other in findings
        if not any(edge.covers(one, other, fixed) for one, edge in edges if one is not other)
    ]
