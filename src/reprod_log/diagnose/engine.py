"""Engine: hypotheses as data, and what runs them over a case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

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
class Supersedes:
    """Findings that another one makes superfluous."""

    rule: str
    """The rule of the finding that explains them; '' for any."""
    others: tuple[str, ...]
    by: Confidence | None = None
    """Only when the finding itself is this sure."""
    of: Confidence | None = None
    """Only findings of this confidence."""
    same_layers: bool = False
    """Only findings about layers that fixes are for."""

    def covers(self, other: Finding, findings: Iterable[Finding]) -> bool:
        """Whether one of the findings makes `other` superfluous."""
        if other.rule not in self.others or self.of not in (None, other.confidence):
            return False
        reasons = [
            one
            for one in findings
            if one is not other
            and one.kind != "remark"
            and self.rule in ("", one.rule)
            and self.by in (None, one.confidence)
        ]
        if not self.same_layers:
            return bool(reasons)
        fixed = {fix.layer for one in reasons for fix in one.fixes}
        paths = {key.path for key in other.keys}
        return bool(paths) and paths <= fixed


_FROM_ROUNDING = (
    "precision_cut", "operator", "between_layers", "constant_factor", "statistics", "weights", "wrong_backward",
    "cut_graph", "loss_scale", "loss_function", "update_fit",
)  # fmt: skip
SUPERSEDED = (
    # An operator found where only the place was suspected.
    Supersedes("operator", ("between_layers",), of="hint"),
    Supersedes("wrong_backward", ("cut_graph",), of="hint"),
    Supersedes("cut_graph", ("cut_graph",), of="hint"),
    # What a proven cause does to its layer, described by other hypotheses.
    Supersedes("", ("constant_factor", "statistics"), by="proven", same_layers=True),
    # These see a constant factor in every gradient and do not know of ranks.
    Supersedes("sum_for_mean", ("loss_scale", "constant_factor")),
    # Layers that are not rounded as they declare: what that does to numbers, described by other hypotheses. What does
    # not come from numbers of layers (data, rates, settings, modes) is a cause of its own.
    Supersedes("scheme", _FROM_ROUNDING),
    # These take parameters which were not recorded for missing in the model.
    Supersedes("rank_parameters", ("missing_parameter", "cut_graph", "update_fit")),
)


@dataclass(frozen=True)
class Hypothesis:
    """Something that is often the cause: where to look for it, and how.

    `look` reads numbers; on a healthy pair it finds nothing. Of its findings only a doubt changes a verdict.
    """

    rule: str
    look: Callable[[Case], Iterable[Finding]]
    where: Where = Where()


def find(hypotheses: Iterable[Hypothesis], case: Case) -> list[Finding]:
    """What the hypotheses that may speak about a case find, without what others of them explain."""
    found: list[Finding] = []
    for one in hypotheses:
        if one.where.holds(case):
            # What needs values finds nothing where only sketches or statistics were recorded.
            with suppress(ValuesNotRecorded):
                found += one.look(case)
    return [one for one in unexplained(found) if is_possible(one, case)]


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


def unexplained(findings: Sequence[Finding], edges: Iterable[Supersedes] = SUPERSEDED) -> list[Finding]:
    """The findings without those that others of them make superfluous."""
    return [one for one in findings if not any(edge.covers(one, findings) for edge in edges)]
