"""One entry held against its rounding floor: both sides in float64, the candidate in its own precision, or assumed."""

from __future__ import annotations

import math
from dataclasses import replace

from reprod_log.layers.lookup import names_of_statistic
from reprod_log.measure.measurement import Measurement
from reprod_log.messages import Message, Number, Parts, message
from reprod_log.verdict.calibrated_policy import CalibratedPolicy
from reprod_log.verdict.evidence import FloorEvidence
from reprod_log.verdict.fixed import Check, Judgement, nonfinite_problem
from reprod_log.verdict.noise_floor import NoiseFloor
from reprod_log.verdict.status import Basis, Status

EPS = 2.0**-24
"""Half a unit in the last place of float32, relative to the value: the rounding of one operation."""


def wide(one: FloorEvidence, factor: float, policy: CalibratedPolicy, *, suspect: bool = False) -> Judgement:
    """Both in float64: the error in noise floors, by norm and by largest element."""
    assert one.float64 is not None
    error, noise = one.float64, one.noise
    bad = _nonfinite(one, error, policy)
    if bad is not None:
        return bad
    noise_rms, noise_max = (noise.rmse, noise.max_abs) if noise is not None else (0.0, 0.0)
    size = error.reference
    checks = (
        _check("rms", error.rmse, noise_rms + EPS * size.rms, factor, constant=one.constant * size.rms),
        _check("max", error.max_abs, noise_max + EPS * size.abs_max, factor, constant=one.constant * size.abs_max),
    )
    if not all(check.passed for check in checks):
        return Judgement(one.key, Status.FAIL, checks, _sentence(checks), one.basis)
    if suspect and error.rmse > policy.suspect * size.rms and noise_rms <= policy.noise_only * size.rms:
        reason = message("reason.constant", share=Number(error.rmse / size.rms, ".1e"))
        return Judgement(one.key, Status.SUSPECT, checks, reason, one.basis)
    return Judgement(one.key, Status.PASS, checks, None, one.basis)


def narrow(
    one: FloorEvidence, floor: NoiseFloor, policy: CalibratedPolicy, factor: float, objection: Status
) -> Judgement:
    """The candidate in its own precision against the reference's truth."""
    assert one.float32 is not None
    error = one.float32
    bad = _nonfinite(one, error, policy)
    if bad is not None:
        return bad
    constant = one.constant * error.reference.rms
    check = _check("rms", error.rmse, pooled_floor(one, floor), factor, constant=constant)
    if check.passed:
        return Judgement(one.key, Status.PASS, (check,), None, one.basis)
    return Judgement(one.key, objection, (check,), _sentence((check,)), one.basis)


def assumed(one: FloorEvidence, policy: CalibratedPolicy) -> Judgement:
    """Nothing was measured: the rounding of one operation, grown with the length of the sum, is assumed."""
    if one.float32 is None:
        return Judgement(one.key, Status.INCOMPARABLE, reason=message("reason.no_measurement"))
    bad = _nonfinite(one, one.float32, policy)
    if bad is not None:
        return bad
    error, size = one.float32, one.float32.reference
    floor = EPS * math.sqrt(max(one.reduction, 1)) * size.rms
    check = _check("rms", error.rmse, floor, policy.default)
    status = Status.PASS if check.passed else Status.FAIL
    return Judgement(one.key, status, (check,), _sentence((check,)), Basis.ASSUMED)


def _nonfinite(one: FloorEvidence, error: Measurement, policy: CalibratedPolicy) -> Judgement | None:
    problem = nonfinite_problem(error, equal_nan=policy.equal_nan)
    return Judgement(one.key, Status.FAIL, (), problem, one.basis) if problem is not None else None


def _check(name: str, value: float, floor: float, factor: float, *, constant: float = 0.0) -> Check:
    limit = factor * floor + constant
    return Check(name, value, limit, bool(value <= limit), floor=floor)


def _sentence(checks: tuple[Check, ...]) -> Message | None:
    parts = []
    for check in checks:
        if not check.passed and check.floor is not None:
            times = check.value / check.floor if check.floor else math.inf
            parts.append(
                message(
                    "reason.above_floor",
                    metric=check.metric,
                    value=Number(check.value),
                    times=Number(times),
                    floor=Number(check.floor),
                    allowed=Number(check.limit / check.floor if check.floor else 0),
                )
            )
    if len(parts) < 2:
        return parts[0] if parts else None
    return message("reason.several", reasons=Parts(parts))


def pooled_floor(one: FloorEvidence, floor: NoiseFloor) -> float:
    """The floor with the length of sums in it; for single numbers the worst noise of their kind over all steps."""
    assert one.float32 is not None
    assert one.noise is not None
    rms, size = one.noise.rmse, one.float32.reference
    if one.float32.count == 1:
        kind = series(one)
        peers = [other.noise for other in floor.evidence if series(other) == kind and other.noise is not None]
        shares = [noise.rmse / noise.reference.rms for noise in peers if noise.reference.rms]
        rms = max([rms, *(share * size.rms for share in shares)])
    return rms + EPS * math.sqrt(max(one.reduction, 1)) * (size.rms + _spread(one, floor))


def _spread(one: FloorEvidence, floor: NoiseFloor) -> float:
    """For a running mean, the deviation of what was averaged: a mean of zero is rounded like the values it sums."""
    for mean, variance in zip(names_of_statistic("running_mean"), names_of_statistic("running_var"), strict=True):
        key = one.key
        if key.phase == "buffer" and key.path.endswith(mean):
            sibling = replace(key, path=key.path.removesuffix(mean) + variance)
            found = floor.by_key.get(sibling)
            if found is not None and found.float32 is not None:
                return math.sqrt(found.float32.reference.rms)
    return 0.0


def series(one: FloorEvidence) -> tuple[str, str, str, str | None]:
    """The same tensor over the steps."""
    key = one.key
    return key.phase, key.path, key.role, key.region


def ratio(one: FloorEvidence, floor: NoiseFloor) -> float:
    """The candidate's error in its own precision, in floors."""
    assert one.float32 is not None
    error, below = one.float32.rmse, pooled_floor(one, floor)
    return error / below if below else (0.0 if error == 0 else math.inf)
