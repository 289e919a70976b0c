"""Judgement and Verdict: the status of each entry, the one word for all, and where two sides first part.

Passing is earned, never assumed: no pair is no pass, and whatever did not pass or has no partner counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from reprod_log.measure.comparison import Comparison, Unmatched
from reprod_log.messages import Message, Names, message
from reprod_log.recording import PHASES, Key
from reprod_log.recording.plain import Plain
from reprod_log.verdict.policy import CalibratedPolicy, Policy
from reprod_log.verdict.status import Basis, Status


@dataclass(frozen=True)
class Check:
    """One metric held against its limit."""

    metric: str
    value: float
    limit: float
    passed: bool
    floor: float | None = None
    """What rounding alone would give; None for fixed limits."""

    @classmethod
    def of(cls, metric: str, value: float, limit: float, *, floor: float | None = None) -> Check:
        """The value held against the limit: `<=` and not `not >`, so that a NaN never passes."""
        return cls(metric, value, limit, bool(value <= limit), floor)

    @property
    def ratio(self) -> float | None:
        """The value in noise floors."""
        return None if not self.floor else self.value / self.floor


@dataclass(frozen=True)
class Judgement(Plain):
    """The status of one entry, with every check behind it."""

    key: Key
    status: Status
    checks: tuple[Check, ...] = ()
    reason: Message | None = None
    """Why it did not pass, or what a reader should know of an entry that passes."""
    evidence: Basis = Basis.FIXED_LIMIT
    """What the judgement stands on."""


def judged(
    key: Key,
    checks: tuple[Check, ...],
    evidence: Basis,
    *,
    reason: Message | None = None,
    otherwise: Status = Status.FAIL,
) -> Judgement:
    """PASS when every check passes, `otherwise` with the reason when one does not."""
    if all(check.passed for check in checks):
        return Judgement(key, Status.PASS, checks, None, evidence)
    return Judgement(key, otherwise, checks, reason, evidence)


@dataclass(frozen=True)
class Verdict:
    """The judgements in execution order, and the one word for all of them."""

    status: Status
    judgements: tuple[Judgement, ...]
    allowed: tuple[Key, ...] = ()
    """Unmatched keys that the policy lets through."""

    @property
    def passed(self) -> bool:
        return self.status.passed

    def unless_passed(self, status: Status) -> Verdict:
        """The verdict, with this word instead of one that passes: what is not known to hold has not passed."""
        return replace(self, status=status) if self.passed else self

    @property
    def counts(self) -> dict[Status, int]:
        return dict(Counter(judgement.status for judgement in self.judgements))

    @property
    def first_divergence(self) -> Judgement | None:
        """The earliest entry in execution order that did not pass: compared, or a gradient that one side lacks."""
        return _first_divergence(self.judgements)

    @property
    def last_agreement(self) -> Judgement | None:
        """The entry that passed last before the first divergence."""
        return _last_agreement(self.judgements)


def verdict_on(comparison: Comparison, judgements: list[Judgement], policy: Policy | CalibratedPolicy) -> Verdict:
    """The verdict on the judgements of all pairs and on the entries without a partner, as the policy loosens them.

    However much it lets through, no pair is no pass; nor are pairs without a single element.
    """
    compared = accepted(judgements, policy.accept)
    unmatched, allowed = [], []
    for one in comparison.unmatched:
        if policy.allows_unmatched(str(one.key)):
            allowed.append(one.key)
        else:
            unmatched.append(Judgement(one.key, Status.UNMATCHED, reason=_only_in(one)))
    everything = (*compared, *accepted(unmatched, policy.accept))
    without = [row.measurement is not None and row.measurement.count == 0 for row in comparison.rows]
    nothing = not compared or (bool(without) and all(without))
    return Verdict(Status.NOTHING if nothing else _overall(everything), everything, tuple(allowed))


def accepted(judgements: list[Judgement], patterns: tuple[str, ...]) -> list[Judgement]:
    """The judgements with known differences accepted; each of them states it."""
    return [
        replace(one, status=Status.ACCEPTED, reason=one.reason and message("reason.accepted", reason=one.reason))
        if not one.status.passed and any(fnmatchcase(str(one.key), pattern) for pattern in patterns)
        else one
        for one in judgements
    ]


def _only_in(one: Unmatched) -> Message:
    id = "reason.only_in_reference" if one.side == "reference" else "reason.only_in_candidate"
    return message(f"{id}.near", names=Names(one.near)) if one.near else message(id)


def _overall(judgements: Sequence[Judgement]) -> Status:
    """The one word for all of them: the worst. What was accepted does not count against them."""
    statuses = {one.status for one in judgements}
    for worst in (Status.FAIL, Status.INCOMPARABLE, Status.UNMATCHED, Status.PRECISION, Status.SUSPECT):
        if worst in statuses:
            return worst if worst in (Status.PRECISION, Status.SUSPECT) else Status.FAIL
    return Status.PASS


_LOST = {"backward": "forward", "gradient": "parameter"}
"""What a gradient belongs to: it is lost when that has a partner and the gradient has none."""


def _first_divergence(judgements: Sequence[Judgement]) -> Judgement | None:
    """The earliest entry that did not pass: compared, or a gradient that one side lacks."""
    failed = [one for one in judgements if not one.status.passed and one.status is not Status.UNMATCHED]
    if any(not one.key.run and one.key.phase == "forward" for one in failed):
        # The whole program alone is the program as it runs, and shows no place in it.
        failed = [one for one in failed if not (one.key.run == "isolated" and one.key.layer_alone == "")]
    compared = next(iter(failed), None)
    lost = _first_lost(judgements)
    if compared is None or lost is None:
        return compared or lost
    key = compared.key
    # A layer that is wrong alone is nearer to the mistake than anything in the free run.
    return lost if not key.run and _time(lost.key) < _time(key) else compared


def _last_agreement(judgements: Sequence[Judgement]) -> Judgement | None:
    """The entry that passed last before the first divergence, in the order in which the program ran."""
    first = _first_divergence(judgements)
    if first is None:
        return None
    key = first.key
    if key.run == "isolated" and key.phase in ("forward", "backward"):
        # Layers alone are judged before the program as it runs, whose order is meant.
        found = _last_before(judgements, lambda other: other.path == key.path and other.phase == "forward")
        if found is not None:
            return found
    if first.status is Status.UNMATCHED:
        earlier = [one for one in judgements if _agrees(one) and _is_before(one.key, key)]
        return max(reversed(earlier), key=lambda one: _time(one.key), default=None)
    return next((one for one in reversed(judgements[: judgements.index(first)]) if _agrees(one)), None)


def _agrees(one: Judgement) -> bool:
    return one.status.passed and one.status is not Status.ACCEPTED


def _is_before(one: Key, other: Key) -> bool:
    return not one.run and _time(one) < _time(other)


def _last_before(judgements: Sequence[Judgement], is_place: Callable[[Key], bool]) -> Judgement | None:
    """What passed last in the program as it runs before a place in it."""
    last = None
    for one in judgements:
        key = one.key
        if key.run or one.status is Status.UNMATCHED:
            continue
        if is_place(key):
            return last
        if _agrees(one):
            last = one
    return last


def _first_lost(judgements: Sequence[Judgement]) -> Judgement | None:
    """The first gradient that one side lacks although both have what it belongs to: the graph is cut behind it."""
    unmatched = [one for one in judgements if one.status is Status.UNMATCHED]
    if not unmatched:
        return None
    both = {
        (key.step, key.phase, key.path)
        for one in judgements
        if one.status is not Status.UNMATCHED and not (key := one.key).run
    }
    lost = [
        one
        for one in unmatched
        if (key := one.key).phase in _LOST and not key.run and (key.step, _LOST[key.phase], key.path) in both
    ]
    return min(lost, key=lambda one: _time(one.key), default=None)


def _time(key: Key) -> tuple[int, int]:
    return key.step or 0, PHASES.index(key.phase) if key.phase in PHASES else len(PHASES)
