"""judge: every pair held against fixed limits, and the sentence about each that does not pass."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from reprod_log.measure.comparison import Compared, Comparison
from reprod_log.measure.measurement import Estimate, Measurement, Worst
from reprod_log.measure.metrics import metric
from reprod_log.messages import Code, Message, Number, Parts, message
from reprod_log.recording import Key
from reprod_log.verdict.evidence import FLOAT64
from reprod_log.verdict.judgement import Check, Judgement, Verdict, verdict_on
from reprod_log.verdict.policy import EXACT_KINDS, Limit, Policy
from reprod_log.verdict.status import Basis, Status

_FEW = 0.0005
"""A smaller share is given as a count."""
_COARSENESS = ("float8_e5m2", "float8", "bfloat16", "float16", "float32", "complex64", "float64", "complex128")


def judge(comparison: Comparison, policy: Policy) -> Verdict:
    """The verdict of `policy` on everything that was compared, or could not be."""
    keys = {row.key for row in comparison.rows}
    judgements = [judge_row(row, policy) for row in comparison.rows if not is_evidence(row.key, keys)]
    return verdict_on(comparison, judgements, policy)


def is_evidence(key: Key, keys: Collection[Key]) -> bool:
    """Whether this is the float64 run of an entry that is judged as it ran: fixed limits are for the program as it is.

    Judging both would count every entry twice.
    """
    mode, _, wide = key.run.rpartition(".")
    return wide == FLOAT64 and key.in_run(mode) in keys


def judge_row(row: Compared, policy: Policy) -> Judgement:
    """The status of one compared pair."""
    measurement = row.measurement
    if measurement is None:
        return Judgement(row.key, Status.INCOMPARABLE, reason=row.incomparable)
    found = policy.limits_for(str(row.key), _coarser(row.reference_dtype, row.candidate_dtype))
    if not found:
        missing = message("reason.no_limit", dtype=row.reference_dtype, key=Code(repr(str(row.key))))
        return Judgement(row.key, Status.INCOMPARABLE, reason=missing)
    checks = tuple(Check.of(name, metric(name).value(measurement), limit.value) for name, limit in found.items())
    if measurement.count and not measurement.comparable and policy.equal_nan and not measurement.nonfinite_mismatched:
        return Judgement(row.key, Status.PASS, reason=message("reason.all_nan"))
    nonfinite = nonfinite_problem(measurement, equal_nan=policy.equal_nan)
    if nonfinite is not None:
        return Judgement(row.key, Status.FAIL, checks, nonfinite)
    if measurement.estimate is not None:
        return _judge_estimate(row.key, measurement, measurement.estimate, found)
    if all(check.passed for check in checks):
        return Judgement(row.key, Status.PASS, checks, message("reason.empty") if measurement.count == 0 else None)
    return Judgement(row.key, Status.FAIL, checks, mismatch(row, checks))


def _judge_estimate(key: Key, measurement: Measurement, estimate: Estimate, limits: Mapping[str, Limit]) -> Judgement:
    """The status of a pair without values: it passes or fails only where the bounds leave no other way."""
    evidence = Basis.STATISTICS if estimate.source == "statistics" else Basis.SKETCHES
    checks, bounds = [], []
    failed = False
    for name, limit in limits.items():
        low, high = estimate.bounds.get(name, (0.0, math.inf))
        if name == "nonfinite":
            low = high = float(measurement.nonfinite_mismatched)
        checks.append(Check.of(name, high, limit.value))
        failed = failed or bool(low > limit.value)
        bound = message("reason.bound", metric=name, between=_between(low, high), limit=Number(limit.value, "g"))
        bounds.append(bound)
    reason = message("reason.estimated", source=_estimated(measurement, estimate), bounds=Parts(bounds))
    if failed:
        return Judgement(key, Status.FAIL, tuple(checks), reason, evidence)
    if not all(check.passed for check in checks):
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
        message("reason.check", metric=one.metric, value=_beyond(one), limit=Number(one.limit, "g"))
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


def _beyond(one: Check) -> Number:
    """The value, with as many digits as tell it from its limit."""
    return Number(one.value, ".6g" if f"{one.value:.6g}" != f"{one.limit:.6g}" else ".17g")


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
