"""The calibrated verdict: the reference's own rounding separates rounding from defects, without a tuned threshold.

Both sides are compared in float64, where a correct port agrees to many more digits than float32 has, and the tolerance
is what float32 rounding does to the reference itself. Four tiers, in this order; the first that objects decides:

    1  data       every input is bit-identical
    2  isolated   each layer alone on the reference's input, in float64
    3  free       the whole program, in float64
    4  precision  each layer alone, and the program with the reference's gradients, in the candidate's own precision

docs/verdict.md has the measurements behind the rule and its constants.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from reprod_log.errors import UsageError
from reprod_log.layers.lookup import names_of_statistic
from reprod_log.measure.comparison import Comparison
from reprod_log.measure.measurement import Measurement
from reprod_log.messages import Code, Message, Number, Parts, message
from reprod_log.recording import Key
from reprod_log.verdict.fixed import (
    Check,
    Judgement,
    Verdict,
    accepted,
    is_evidence,
    judge,
    judge_row,
    nonfinite_problem,
    require_complete,
    unmatched_judgements,
    verdict_on,
)
from reprod_log.verdict.floor import FLOAT64, FloorEvidence, NoiseFloor, may_have_flipped
from reprod_log.verdict.narrow import judge_in, judge_narrow, keeps_narrow_weights, narrow_type
from reprod_log.verdict.policy import EXACT_KINDS, CalibratedPolicy, Policy
from reprod_log.verdict.status import Basis, Status


def judge_calibrated(comparison: Comparison, floor: NoiseFloor, policy: CalibratedPolicy) -> Verdict:
    """The verdict of the calibrated rule on everything that was compared, or could not be."""
    if any(row.measurement is not None and row.measurement.estimate is not None for row in comparison.rows):
        raise UsageError(
            "the calibrated rule looks at single elements, but of some entries only sketches or statistics were "
            "recorded; record both sides with detail='full', or judge by fixed limits (--limit rel_l2:1e-5)"
        )
    incomparable = _incomparable(comparison)
    data = [*incomparable.pop("data", ()), *_data(floor, policy)]
    isolated = [_isolated(one, policy) for one in floor.of_mode("isolated") if one.float64]
    isolated = _in_order([*isolated, *incomparable.pop("isolated", ())], comparison)
    as_run = {row.key: row.measurement for row in comparison.rows}
    free = [
        _finite_as_run(_free(one, floor, policy), as_run.get(one.key), policy)
        for one in floor.of_mode("")
        if not _is_given(one) and _is_measured(one)
    ]
    free = _in_order([*_formulated_otherwise(free), *incomparable.pop("", ())], comparison)
    further = [one for found in incomparable.values() for one in found]
    # What ran in float64 only is evidence for nothing, so it is judged itself, as fixed limits judge it.
    keys = {row.key for row in comparison.rows}
    further += [
        judge_row(row, Policy()) for row in comparison.rows if row.measurement and _is_float64_only(row.key, keys)
    ]
    # A layer made of layers is wrong alone when the code between them is; the free run then says the place exactly.
    containers = _containers(one.key.layer_alone for one in isolated)
    whole = [one for one in isolated if one.key.layer_alone in containers]
    parts = [one for one in isolated if one.key.layer_alone not in containers]
    judgements = accepted([*data, *parts, *free, *whole, *further], policy.accept)
    if all(one.status.passed for one in judgements):
        judgements = _merged(judgements, _formulated_otherwise(precision_tier(floor, policy)))
    unmatched, allowed = unmatched_judgements(comparison, policy.allows_unmatched)
    return verdict_on(comparison, accepted(judgements, policy.accept), accepted(unmatched, policy.accept), allowed)


def _incomparable(comparison: Comparison) -> dict[str, list[Judgement]]:
    """What could not be measured, by the pass that it belongs to; data by itself."""
    found: dict[str, list[Judgement]] = {}
    for row in comparison.rows:
        if row.measurement is None:
            key = row.key
            tier = "data" if key.phase == "data" and not key.run else key.run
            found.setdefault(tier, []).append(Judgement(row.key, Status.INCOMPARABLE, reason=row.incomparable))
    return found


def _is_float64_only(key: Key, keys: Collection[Key]) -> bool:
    return key.run.rpartition(".")[2] == FLOAT64 and not is_evidence(key, keys)


def _in_order(judgements: list[Judgement], comparison: Comparison) -> list[Judgement]:
    """Judgements in the order in which the program made their entries."""
    order = {row.key: place for place, row in enumerate(comparison.rows)}
    if not all(one.key in order for one in judgements):
        return judgements
    return sorted(judgements, key=lambda one: order[one.key])


def _isolated(one: FloorEvidence, policy: CalibratedPolicy) -> Judgement:
    """Tier 2 for one entry."""
    if _is_exact(one):
        return _exactly(one)
    if one.key.phase == "buffer":
        # Running statistics get the wider limit; what a momentum kept in float32 adds to it is known exactly.
        return wide(one, policy.free, policy)
    return wide(one, policy.isolated, policy, suspect=True)


def _containers(alone: Iterable[str]) -> frozenset[str]:
    """Layers that hold other layers which were run alone too."""
    layers = set(alone)
    return frozenset(
        layer
        for layer in layers
        if any(other != layer and (not layer or other.startswith(f"{layer}.")) for other in layers)
    )


def _is_measured(one: FloorEvidence) -> bool:
    """Whether the pair could be measured at all; if not, it is judged incomparable."""
    return one.float32 is not None or one.float64 is not None


def _is_given(one: FloorEvidence) -> bool:
    """Whether an entry is data. What a second model was fed may be what the first one made: then it has rounding."""
    return one.key.phase == "data" and (one.noise is None or one.noise.differing == 0)


def _data(floor: NoiseFloor, policy: CalibratedPolicy) -> Iterator[Judgement]:
    """Tier 1: what goes in is bit-identical; with other data no later difference means anything."""
    for one in floor.of_mode(""):
        measured = [found for found in (one.float64, one.float32) if found is not None]
        if _is_given(one) and measured:
            # Both passes of the candidate: data that are right in float64 alone are other data as it runs.
            found = next((found for found in measured if not _is_same(found, policy)), measured[0])
            same = _is_same(found, policy)
            check = Check("differing", float(found.differing), 0.0, same)
            reason = None if same else _problem_of_data(found)
            yield Judgement(one.key, Status.PASS if same else Status.FAIL, (check,), reason, Basis.INPUTS)


def _is_same(found: Measurement, policy: CalibratedPolicy) -> bool:
    return found.differing == 0 and not found.nonfinite_mismatched and (policy.equal_nan or not found.nan_both)


def _problem_of_data(found: Measurement) -> Message:
    if not found.differing and not found.nonfinite_mismatched:
        return message("reason.data.nan", some=found.nan_both, all=found.count)
    return message("reason.data", some=found.differing, all=found.count)


def _finite_as_run(judged: Judgement, measured: Measurement | None, policy: CalibratedPolicy) -> Judgement:
    """The judgement, unless the candidate as it runs has a NaN or infinity that the float64 run does not know of."""
    if measured is None or not judged.status.passed:
        return judged
    problem = nonfinite_problem(measured, equal_nan=policy.equal_nan)
    if problem is None:
        return judged
    return replace(judged, status=Status.FAIL, reason=message("reason.as_it_runs", problem=problem))


def _free(one: FloorEvidence, floor: NoiseFloor, policy: CalibratedPolicy) -> Judgement:
    """Tier 3 for one entry, by the best evidence there is for it."""
    key = one.key
    if key.phase == "lr":
        return _lr(one, floor, policy)
    if _is_exact(one):
        return _exactly(one)
    if one.float64 is not None and one.noise is not None:
        # Second moments are squares of gradients: their relative error is twice as large.
        factor = 2 * policy.free if key.phase == "optimizer" else policy.free
        return wide(one, factor, policy)
    if one.noise is not None and one.float32 is not None:
        if _drifts(one, floor):
            return Judgement(one.key, Status.PASS, (), message("reason.drift"), one.basis)
        narrowed = narrow_type(floor)
        if one.emulated is not None and narrowed is not None:
            return judge_in(one, narrowed)
        return narrow(one, floor, policy, narrow_factor(one, policy), Status.FAIL)
    return assumed(one, policy)


def _is_exact(one: FloorEvidence) -> bool:
    """Whether a side is of a kind without rounding."""
    best = one.float64 or one.float32
    return best is not None and (
        best.reference_dtype.startswith(EXACT_KINDS) or best.candidate_dtype.startswith(EXACT_KINDS)
    )


def _exactly(one: FloorEvidence) -> Judgement:
    best = one.float64 or one.float32
    assert best is not None
    same = best.differing == 0 and not best.nonfinite_mismatched and not best.nan_both
    reason = None if same else message("reason.exact", some=best.differing, all=best.count)
    check = Check("differing", float(best.differing), 0.0, same)
    return Judgement(one.key, Status.PASS if same else Status.FAIL, (check,), reason, Basis.EXACT)


def _formulated_otherwise(judgements: list[Judgement]) -> list[Judgement]:
    """The judgements; the gradient of the model's output passes where no gradient behind it differs.

    A loss that takes log-probabilities and one that makes them once more (torch's and paddle's CTC) give the output
    different gradients and everything else the same ones.
    """
    behind: dict[tuple[str, int | None], list[Judgement]] = {}
    trained = set()
    for one in judgements:
        key = one.key
        if key.phase in ("gradient", "backward") and key.path:
            behind.setdefault((key.run, key.step), []).append(one)
            if key.phase == "gradient":
                trained.add((key.run, key.step))
    same = {place for place in trained if all(one.status.passed for one in behind[place])}
    reason = message("reason.other_formulation")
    return [
        replace(one, status=Status.PASS, reason=reason)
        if not one.status.passed and one.checks and _is_of_the_output(one.key, same)
        else one
        for one in judgements
    ]


def _is_of_the_output(key: Key, places: Collection[tuple[str, int | None]]) -> bool:
    return key.phase == "backward" and not key.path and key.role.startswith("output") and (key.run, key.step) in places


def _drifts(one: FloorEvidence, floor: NoiseFloor) -> bool:
    """Whether an entry comes after the first update and a run with the reference's gradients can speak for it.

    In float32 one activation on the other side of a kink makes all that follows differ by far more than rounding.
    """
    key = one.key
    # What is clipped there is the reference's gradient; whether it is clipped alike, the update shows.
    spoken_for = bool(floor.injected) if key.phase == "clip" else key.in_run("injected") in floor.injected
    return bool(key.step) and spoken_for


def _lr(one: FloorEvidence, floor: NoiseFloor, policy: CalibratedPolicy) -> Judgement:
    # Rates are Python floats in every precision: those of the plain run are held to the same limit.
    errors = [found for found in (one.float64, one.float32) if found is not None]
    rates = [
        other_error.reference.abs_max
        for other in floor.of_mode(one.mode)
        if other.key.phase == "lr" and (other_error := other.float64 or other.float32) is not None
    ]
    limit = policy.lr * max(rates)
    error = next((found for found in errors if not found.max_abs <= limit), errors[0])
    check = Check("max_abs", error.max_abs, limit, bool(error.max_abs <= limit))
    if check.passed:
        return Judgement(one.key, Status.PASS, (check,), None, Basis.LEARNING_RATE)
    reason = message("reason.rates.not_finite")
    if error.worst:
        values = {"reference": Code(error.worst.reference), "candidate": Code(error.worst.candidate)}
        reason = message("reason.rates", **values)
    return Judgement(one.key, Status.FAIL, (check,), reason, Basis.LEARNING_RATE)


def _merged(judgements: list[Judgement], later: list[Judgement]) -> list[Judgement]:
    """One judgement per key: a later tier adds its checks, and its word where it objects."""
    by_key = {one.key: one for one in judgements}
    for one in later:
        before = by_key.get(one.key)
        if before is None:
            by_key[one.key] = one
        else:
            decisive = before if one.status.passed else one
            by_key[one.key] = replace(decisive, checks=before.checks + one.checks)
    return list(by_key.values())


def verdict_of(
    comparison: Comparison, policy: Policy | CalibratedPolicy, floor: NoiseFloor | None, complete: bool
) -> Verdict:
    """The verdict of either kind of policy; `complete` says whether both recordings are whole."""
    if not isinstance(policy, CalibratedPolicy):
        return require_complete(judge(comparison, policy), complete=complete, allow_incomplete=policy.allow_incomplete)
    if floor is None:
        raise UsageError(
            "the calibrated policy needs a noise floor, which this saved alignment does not have; "
            "compare the recordings again"
        )
    verdict = judge_calibrated(comparison, floor, policy)
    return require_complete(verdict, complete=complete, allow_incomplete=policy.allow_incomplete)


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
                    # As one would say it: 113,000 times, not 1.13e+05.
                    times=Number(times, ",.0f" if 100 <= times < 1e9 else ".3g"),
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
    return rms + EPS * math.sqrt(max(one.reduction, 1)) * (size.rms + spread(one, floor))


def spread(one: FloorEvidence, floor: NoiseFloor) -> float:
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


def precision_tier(floor: NoiseFloor, policy: CalibratedPolicy) -> list[Judgement]:
    """Tier 4: the same function, but computed with less precision?"""
    from statistics import median  # loads fractions and decimals, which few comparisons need

    narrowed = narrow_type(floor)
    found = []
    modes: tuple[str, ...] = ("isolated", "injected")
    if narrowed is not None:
        alone = _containers(one.key.layer_alone for one in floor.of_mode("isolated"))
        found += [*judge_narrow(floor, narrowed, alone)]
        modes = ("isolated",) if keeps_narrow_weights(floor) else modes
    # The injected pass of the candidate needs no float64: that it has the kernels is known from the free run.
    in_float64 = {one.key for one in floor.evidence if one.float64 is not None}
    for mode in modes:
        rows = [one for one in floor.of_mode(mode) if one.noise is not None and _is_wide(one, narrowed)]
        ratios: dict[tuple[str, str, str, str | None], list[float]] = {}
        for one in rows:
            ratios.setdefault(series(one), []).append(ratio(one, floor))
        for one in rows:
            has_float64 = one.key in in_float64 or one.key.in_run("") in in_float64
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
    outputs = [one for one in rows if one.key.phase == "forward" and one.key.role.startswith("output")]
    flipped = may_have_flipped(outputs) and any(
        not found.status.passed and _may_be_kink(one, policy, phases=("gradient", "backward")) for one, found in judged
    )
    for one, found in judged:
        if found.status.passed or not (flipped and _may_be_kink(one, policy, phases=BEHIND_GRADIENTS)):
            yield found
        else:
            reason = message("reason.kink")
            yield Judgement(one.key, Status.PASS, found.checks, reason, one.basis)


def _is_wide(one: FloorEvidence, narrowed: str | None) -> bool:
    """Whether the candidate computes this in float32: a narrower type explains errors of another size."""
    if one.float32 is None or one.emulated is not None:
        return False
    # With the reference's gradients an optimizer that keeps float32 weights is as exact as ever; nothing else is.
    return narrowed is None or one.key.phase in ("update", "optimizer", "parameter", "lr")


BEHIND_GRADIENTS = ("gradient", "backward", "clip", "update", "optimizer", "parameter")


def _tells(one: FloorEvidence, policy: CalibratedPolicy) -> bool:
    """Whether the precision of an entry can be judged: measured in all ways, not exact, and not rounding alone."""
    if one.float64 is None or one.float32 is None or one.noise is None or one.key.phase in ("data", "lr"):
        return False
    if one.emulated is not None:
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
