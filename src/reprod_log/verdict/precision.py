"""Tier 4 of the calibrated rule: the same function, but computed with less precision?"""

from __future__ import annotations

from collections.abc import Iterator

from reprod_log.messages import message
from reprod_log.verdict.calibrated_policy import CalibratedPolicy
from reprod_log.verdict.evidence import FloorEvidence
from reprod_log.verdict.fixed import Judgement
from reprod_log.verdict.floors import narrow, ratio, series
from reprod_log.verdict.noise_floor import NoiseFloor
from reprod_log.verdict.policy import EXACT_KINDS
from reprod_log.verdict.status import Status


def precision_tier(floor: NoiseFloor, policy: CalibratedPolicy) -> list[Judgement]:
    """Tier 4: the same function, but computed with less precision?"""
    from statistics import median  # loads fractions and decimals, which few comparisons need

    found = []
    # The injected pass of the candidate needs no float64: that it has the kernels is known from the free run.
    wide = {one.key for one in floor.evidence if one.float64 is not None}
    for mode in ("isolated", "injected"):
        rows = [one for one in floor.of_mode(mode) if one.float32 is not None and one.noise is not None]
        ratios: dict[tuple[str, str, str, str | None], list[float]] = {}
        for one in rows:
            ratios.setdefault(series(one), []).append(ratio(one, floor))
        for one in rows:
            has_float64 = one.key in wide or one.key.in_run("") in wide
            factor = policy.precision if has_float64 else narrow_factor(one, policy)
            objection = Status.PRECISION if has_float64 else Status.FAIL
            judged = narrow(one, floor, policy, factor, objection)
            # One activation on the other side of a kink makes one step's gradients jump; a defect stays.
            steady = median(ratios[series(one)]) > factor
            if judged.status.passed or steady or not _may_be_kink(one, policy):
                found.append(judged)
            else:
                reason = message("reason.jump")
                found.append(Judgement(one.key, Status.PASS, judged.checks, reason, one.basis))
    return found if floor.injected else [*found, *_first_step(floor, policy)]


def _first_step(floor: NoiseFloor, policy: CalibratedPolicy) -> Iterator[Judgement]:
    """Tier 4 without the reference's gradients (two recordings): what ran before anything could drift.

    Without it a candidate that is right in float64 alone, or whose two passes are of different programs, would pass.
    """
    steps = {key.step for one in floor.of_mode("") if (key := one.key).step is not None}
    rows = [one for one in floor.of_mode("") if one.key.step in sorted(steps)[:1] and _tells(one, policy)]
    judged = [(one, narrow(one, floor, policy, policy.precision, Status.PRECISION)) for one in rows]
    flipped = any(
        not found.status.passed and _may_be_kink(one, policy, phases=("gradient", "backward")) for one, found in judged
    )
    for one, found in judged:
        if found.status.passed or not (flipped and _may_be_kink(one, policy, phases=_BEHIND_GRADIENTS)):
            yield found
        else:
            reason = message("reason.kink")
            yield Judgement(one.key, Status.PASS, found.checks, reason, one.basis)


_BEHIND_GRADIENTS = ("gradient", "backward", "clip", "update", "optimizer", "parameter")


def _tells(one: FloorEvidence, policy: CalibratedPolicy) -> bool:
    """Whether the precision of an entry can be judged: measured in all ways, not exact, and not rounding alone."""
    if one.float64 is None or one.float32 is None or one.noise is None or one.key.phase in ("data", "lr"):
        return False
    if one.float32.reference_dtype.startswith(EXACT_KINDS):
        return False
    return one.noise.rmse <= policy.noise_only * one.float32.reference.rms


def _may_be_kink(one: FloorEvidence, policy: CalibratedPolicy, *, phases: tuple[str, ...] = ("gradient",)) -> bool:
    assert one.float32 is not None
    small = one.float32.rmse <= policy.kink * one.float32.reference.rms
    return small and one.key.phase in phases


def narrow_factor(one: FloorEvidence, policy: CalibratedPolicy) -> float:
    """Without float64, what an optimizer makes of its history gets the wider limit.

    1 - 0.999 in float32 is off by 215 EPS, and so are Adam's second moments; from the second step on 1 - 0.999^t no
    longer cancels it, and updates and the parameters that began at zero have it too. The first update shows a wrong
    rule by the narrow limit.
    """
    key = one.key
    with_history = key.phase == "optimizer" or (key.phase in ("update", "parameter") and bool(key.step))
    return policy.precision if with_history else policy.without_float64
