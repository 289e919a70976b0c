"""judge: turns measurements into statuses by a policy. Passing is earned, never assumed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from reprod_log.measure.comparison import Compared, Comparison, Unmatched
from reprod_log.measure.measurement import Estimate, Measurement, Worst
from reprod_log.measure.metrics import metric
from reprod_log.messages import Code, Message, Names, Number, Parts, message
from reprod_log.recording import Key
from reprod_log.verdict.floor import FLOAT64
from reprod_log.verdict.place import first_divergence, last_agreement
from reprod_log.verdict.policy import EXACT_KINDS, Limit, Policy
from reprod_log.verdict.status import Basis, Status

_FEW = 0.0005
"""A smaller share is given as a count."""
_COARSENESS = ("float8_e5m2", "float8", "bfloat16", "float16", "float32", "complex64", "float64", "complex128")


@dataclass(frozen=True)
class Check:
    """One metric held against its limit."""

    metric: str
    value: float
    limit: float
    passed: bool
    floor: float | None = None
    """What rounding alone would give; None for fixed limits."""

    @property
    def ratio(self) -> float | None:
        """The value in noise floors."""
        return None if not self.floor else self.value / self.floor


@dataclass(frozen=True)
class Judgement:
    """The status of one entry, with every check behind it."""

    key: Key
    status: Status
    checks: tuple[Check, ...] = ()
    reason: Message | None = None
    """Why it did not pass, or what a reader should know of an entry that passes."""
    evidence: Basis = Basis.FIXED_LIMIT
    """What the judgement stands on."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values: sentences in English, and beside them the messages that they are made from."""
        found: dict[str, Any] = {
            "key": str(self.key),
            "status": str(self.status),
            # Not asdict, which copies every value deeply: tens of thousands are written.
            "checks": [dict(vars(one)) for one in self.checks],
            "reason": "" if self.reason is None else str(self.reason),
            "evidence": str(self.evidence),
        }
        if self.reason is not None:
            found["reason_id"] = self.reason.to_dict(text=False)
        return found


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

    @property
    def counts(self) -> dict[Status, int]:
        return dict(Counter(judgement.status for judgement in self.judgements))

    @property
    def first_divergence(self) -> Judgement | None:
        """The earliest entry in execution order that did not pass: compared, or a gradient that one side lacks."""
        return first_divergence(self.judgements)

    @property
    def last_agreement(self) -> Judgement | None:
        """The entry that passed last before the first divergence."""
        return last_agreement(self.judgements)


def require_complete(verdict: Verdict, *, complete: bool, allow_incomplete: bool) -> Verdict:
    """The verdict, unless it would pass although a recording was cut short: what is missing has not passed."""
    if complete or allow_incomplete or not verdict.passed:
        return verdict
    return replace(verdict, status=Status.INCOMPLETE)


def require_proven(verdict: Verdict, *, proven: bool, allow_unproven: bool) -> Verdict:
    """The verdict, unless it would pass although a doubt says that this proves nothing."""
    if proven or allow_unproven or not verdict.passed:
        return verdict
    return replace(verdict, status=Status.UNPROVEN)


def judge(comparison: Comparison, policy: Policy) -> Verdict:
    """The verdict of `policy` on everything that was compared, or could not be."""
    keys = {row.key for row in comparison.rows}
    judgements = [judge_row(row, policy) for row in comparison.rows if not is_evidence(row.key, keys)]
    unmatched, allowed = unmatched_judgements(comparison, policy.allows_unmatched)
    return verdict_on(comparison, accepted(judgements, policy.accept), accepted(unmatched, policy.accept), allowed)


def is_evidence(key: Key, keys: Collection[Key]) -> bool:
    """Whether this is the float64 run of an entry that is judged as it ran: fixed limits are for the program as it is.

    Judging both would count every entry twice.
    """
    mode, _, wide = key.run.rpartition(".")
    return wide == FLOAT64 and key.in_run(mode) in keys


def verdict_on(
    comparison: Comparison, compared: list[Judgement], unmatched: list[Judgement], allowed: tuple[Key, ...]
) -> Verdict:
    """The verdict on pairs and on entries without a partner; however much is let through, no pair is no pass.

    Nor are pairs without a single element.
    """
    judgements = (*compared, *unmatched)
    without = [row.measurement is not None and row.measurement.count == 0 for row in comparison.rows]
    nothing = not compared or (bool(without) and all(without))
    return Verdict(Status.NOTHING if nothing else overall(judgements), judgements, allowed)


def accepted(judgements: list[Judgement], patterns: tuple[str, ...]) -> list[Judgement]:
    """The judgements with known differences accepted; each of them states it."""
    return [
        replace(one, status=Status.ACCEPTED, reason=_accepted_although(one.reason))
        if not one.status.passed and any(fnmatchcase(str(one.key), pattern) for pattern in patterns)
        else one
        for one in judgements
    ]


def _accepted_although(reason: Message | None) -> Message | None:
    return None if reason is None else message("reason.accepted", reason=reason)


def unmatched_judgements(
    comparison: Comparison, allows: Callable[[str], bool]
) -> tuple[list[Judgement], tuple[Key, ...]]:
    """A judgement for every entry without a partner, and the keys of those that the policy lets through."""
    unmatched, allowed = [], []
    for one in comparison.unmatched:
        if allows(str(one.key)):
            allowed.append(one.key)
        else:
            unmatched.append(Judgement(one.key, Status.UNMATCHED, reason=_only_in(one)))
    return unmatched, tuple(allowed)


def judge_row(row: Compared, policy: Policy) -> Judgement:
    """The status of one compared pair."""
    measurement = row.measurement
    if measurement is None:
        return Judgement(row.key, Status.INCOMPARABLE, reason=row.incomparable)
    found = policy.limits_for(str(row.key), _coarser(row.reference_dtype, row.candidate_dtype))
    if not found:
        missing = message("reason.no_limit", dtype=row.reference_dtype, key=Code(repr(str(row.key))))
        return Judgement(row.key, Status.INCOMPARABLE, reason=missing)
    checks = []
    for name, limit in found.items():
        value = metric(name).value(measurement)
        # `<=` and not `not >`: a NaN never passes.
        checks.append(Check(name, value, limit.value, bool(value <= limit.value)))
    if measurement.count and not measurement.comparable and policy.equal_nan and not measurement.nonfinite_mismatched:
        return Judgement(row.key, Status.PASS, reason=message("reason.all_nan"))
    nonfinite = nonfinite_problem(measurement, equal_nan=policy.equal_nan)
    if nonfinite is not None:
        return Judgement(row.key, Status.FAIL, tuple(checks), nonfinite)
    if measurement.estimate is not None:
        return _judge_estimate(row.key, measurement, measurement.estimate, found)
    if all(check.passed for check in checks):
        return Judgement(
            row.key, Status.PASS, tuple(checks), message("reason.empty") if measurement.count == 0 else None
        )
    return Judgement(row.key, Status.FAIL, tuple(checks), mismatch(row, tuple(checks)))


def _judge_estimate(key: Key, measurement: Measurement, estimate: Estimate, limits: Mapping[str, Limit]) -> Judgement:
    """The status of a pair without values: it passes or fails only where the bounds leave no other way."""
    evidence = Basis.STATISTICS if estimate.source == "statistics" else Basis.SKETCHES
    checks, bounds = [], []
    failed = undecided = False
    for name, limit in limits.items():
        low, high = estimate.bounds.get(name, (0.0, math.inf))
        if name == "nonfinite":
            low = high = float(measurement.nonfinite_mismatched)
        passed = bool(high <= limit.value)
        checks.append(Check(name, high, limit.value, passed))
        failed = failed or bool(low > limit.value)
        undecided = undecided or not passed
        bound = message("reason.bound", metric=name, between=_between(low, high), limit=Number(limit.value, "g"))
        bounds.append(bound)
    reason = message("reason.estimated", source=_estimated(measurement, estimate), bounds=Parts(bounds))
    if failed:
        return Judgement(key, Status.FAIL, tuple(checks), reason, evidence)
    if undecided:
        undecided_reason = message("reason.undecided", reason=reason)
        return Judgement(key, Status.INCOMPARABLE, tuple(checks), undecided_reason, evidence)
    return Judgement(key, Status.PASS, tuple(checks), reason, evidence)


def _estimated(measurement: Measurement, estimate: Estimate) -> Message:
    if estimate.source == "statistics":
        return message("reason.statistics")
    value, error = Number(measurement.rel_l2, ".2e"), Number(estimate.error, ".1%")
    return message("reason.sketches", value=value, error=error)


def _between(low: float, high: float) -> Message:
    if high == math.inf:
        return message("reason.at_least", low=Number(low, ".2e")) if low > 0 else message("reason.not_known")
    return message("reason.between", low=Number(low, ".2e"), high=Number(high, ".2e"))


def mismatch(row: Compared, checks: tuple[Check, ...]) -> Message:
    """Metric, value, limit, worst element with both numbers, and the share beyond the limit."""
    measurement = row.measurement
    if measurement is not None and has_no_size(measurement):
        return _unequal(measurement)
    failed = tuple(
        message("reason.check", metric=one.metric, value=Number(one.value, ".6g"), limit=Number(one.limit, "g"))
        for one in checks
        if not one.passed
    )
    if measurement is None or measurement.worst is None:
        return message("reason.beyond", checks=failed)
    worst = _worst(measurement.worst)
    share, beyond = measurement.share_beyond, measurement.beyond_limit
    if share is None or beyond is None or measurement.limit is None or measurement.count <= 1:
        return message("reason.beyond.worst", checks=failed, worst=worst)
    limit = Number(measurement.limit, "g")
    # Of a large tensor a few are 0.0%, and yet they are what fails.
    if 0 < share < _FEW:
        return message("reason.beyond.few", checks=failed, worst=worst, few=beyond, all=measurement.count, limit=limit)
    return message("reason.beyond.share", checks=failed, worst=worst, share=Number(share, ".1%"), limit=limit)


def _worst(worst: Worst) -> Message:
    values = {"reference": _short(worst.reference), "candidate": _short(worst.candidate)}
    if not worst.index:
        return message("reason.worst", **values)
    return message("reason.worst.at", index=Code(list(worst.index)), **values)


def has_no_size(measurement: Measurement) -> bool:
    """Whether elements differ that cannot be subtracted: texts, objects, dates."""
    if measurement.estimate is not None or measurement.nonfinite_mismatched:
        return False
    return bool(measurement.differing) and math.isnan(measurement.max_abs)


def _unequal(measurement: Measurement) -> Message:
    """How many differ, and the first of them on both sides."""
    worst = measurement.worst
    if worst is None:
        return message("reason.unequal", some=measurement.differing, all=measurement.count)
    values = {"reference": Code(worst.reference), "candidate": Code(worst.candidate)}
    if measurement.count == 1:
        return message("reason.unequal.one", **values)
    index = Code(list(worst.index))
    return message("reason.unequal.first", some=measurement.differing, all=measurement.count, index=index, **values)


def nonfinite_problem(measurement: Measurement, *, equal_nan: bool) -> Message | None:
    """What is wrong with NaN and infinities of a pair, with the counts of both sides; None when nothing is."""
    problems = []
    if measurement.nonfinite_mismatched:
        problems.append(message("reason.nonfinite.one", some=measurement.nonfinite_mismatched, all=measurement.count))
    if measurement.nan_both and not equal_nan:
        problems.append(message("reason.nonfinite.both", some=measurement.nan_both, all=measurement.count))
    if not problems:
        return None
    reference, candidate = measurement.reference, measurement.candidate
    return message(
        "reason.nonfinite",
        problems=Parts(problems),
        nan=reference.nan,
        inf=reference.inf,
        candidate_nan=candidate.nan,
        candidate_inf=candidate.inf,
    )


def _only_in(one: Unmatched) -> Message:
    id = "reason.only_in_reference" if one.side == "reference" else "reason.only_in_candidate"
    return message(f"{id}.near", names=Names(one.near)) if one.near else message(id)


def overall(judgements: Iterable[Judgement]) -> Status:
    """The one word for all of them: the worst. What was accepted does not count against them."""
    statuses = {one.status for one in judgements}
    for worst in (Status.FAIL, Status.INCOMPARABLE, Status.UNMATCHED, Status.PRECISION, Status.SUSPECT):
        if worst in statuses:
            return worst if worst in (Status.PRECISION, Status.SUSPECT) else Status.FAIL
    return Status.PASS


def _coarser(reference: str, candidate: str) -> str:
    """The dtype whose limit holds for a pair of two: one without rounding, else the one with less precision."""
    if reference == candidate or reference.startswith(EXACT_KINDS):
        return reference
    if candidate.startswith(EXACT_KINDS):
        return candidate

    def rank(name: str) -> int:
        return next((place for place, known in enumerate(_COARSENESS) if name.startswith(known)), len(_COARSENESS))

    return min(reference, candidate, key=rank)


def _short(value: object) -> Code:
    return Code(f"{value:.9g}" if isinstance(value, float) else value)
