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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from reprod_log.errors import UsageError
from reprod_log.measure.comparison import Comparison
from reprod_log.measure.measurement import Measurement
from reprod_log.messages import Code, Message, Number, Parts, message
from reprod_log.recording import Key
from reprod_log.verdict.evidence import EPS, FLOAT64, FloorEvidence, Series, share_of_float32
from reprod_log.verdict.fixed import is_evidence, judge, judge_row, nonfinite_problem
from reprod_log.verdict.floor import NoiseFloor
from reprod_log.verdict.judgement import Check, Judgement, Verdict, accepted, judged, verdict_on
from reprod_log.verdict.kinks import (
    BEHIND_GRADIENTS,
    GRADIENTS,
    JUMP,
    follows_a_jump,
    is_output,
    may_have_flipped,
    moved_at_most,
)
from reprod_log.verdict.narrow import judge_by_scheme, judge_in, judge_narrow, keeps_narrow_weights, narrow_type
from reprod_log.verdict.policy import EXACT_KINDS, CalibratedPolicy, Policy
from reprod_log.verdict.status import Basis, Status

_MANY = 128
"""Elements of a tensor from which one that is wrong may be lost in its norm."""


def verdict_of(
    comparison: Comparison, policy: Policy | CalibratedPolicy, floor: NoiseFloor | None, complete: bool
) -> Verdict:
    """The verdict of either kind of policy; `complete` says whether both recordings are whole."""
    if isinstance(policy, Policy):
        verdict = judge(comparison, policy)
    elif floor is not None:
        verdict = judge_calibrated(comparison, floor, policy)
    else:
        raise UsageError(
            "the calibrated policy needs a noise floor, which this saved alignment does not have; "
            "compare the recordings again"
        )
    return verdict if complete or policy.allow_incomplete else verdict.unless_passed(Status.INCOMPLETE)


def judge_calibrated(comparison: Comparison, floor: NoiseFloor, policy: CalibratedPolicy) -> Verdict:
    """The verdict of the calibrated rule on everything that was compared, or could not be."""
    if any(row.measurement is not None and row.measurement.estimate is not None for row in comparison.rows):
        raise UsageError(
            "the calibrated rule looks at single elements, but of some entries only sketches or statistics were "
            "recorded; record both sides with detail='full', or judge by fixed limits (--limit rel_l2:1e-5)"
        )
    incomparable = _incomparable(comparison)
    as_run = {row.key: row.measurement for row in comparison.rows}
    data = [*incomparable.pop("data", ()), *_finite_as_run(_data(floor, policy), as_run, policy)]
    isolated = [_isolated(one, policy) for one in floor.of_mode("isolated") if one.float64]
    isolated = _in_order([*isolated, *incomparable.pop("isolated", ())], comparison)
    free = [
        _free(one, floor, policy)
        for one in floor.of_mode("")
        if not _is_given(one) and (one.float32 is not None or one.float64 is not None)
    ]
    free = [*_finite_as_run(_formulated_otherwise(free), as_run, policy), *incomparable.pop("", ())]
    free = _in_order(free, comparison)
    further = [one for found in incomparable.values() for one in found]
    # What ran in float64 only is evidence for nothing, so it is judged itself, as fixed limits judge it.
    further += [
        judge_row(row, Policy()) for row in comparison.rows if row.measurement and _is_float64_only(row.key, as_run)
    ]
    # A layer made of layers is wrong alone when the code between them is; the free run then says the place exactly.
    containers = _containers(one.key.layer_alone for one in isolated)
    whole = [one for one in isolated if one.key.layer_alone in containers]
    parts = [one for one in isolated if one.key.layer_alone not in containers]
    judgements = accepted([*data, *parts, *free, *whole, *further], policy.accept)
    if all(one.status.passed for one in judgements):
        judgements = _merged(judgements, _formulated_otherwise(_precision(floor, policy)))
    return verdict_on(comparison, judgements, policy)


def _incomparable(comparison: Comparison) -> dict[str, list[Judgement]]:
    """What could not be measured, by the pass that it belongs to; data by itself."""
    found: dict[str, list[Judgement]] = {}
    for row in comparison.rows:
        if row.measurement is None:
            tier = "data" if row.key.phase == "data" and not row.key.run else row.key.run
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


# ---- tier 1: data ----------------------------------------------------------------------------------------------------
def _data(floor: NoiseFloor, policy: CalibratedPolicy) -> Iterator[Judgement]:
    """What goes in is bit-identical; with other data no later difference means anything."""
    for one in floor.of_mode(""):
        # Both passes of the candidate: data that are right in float64 alone are other data as it runs.
        measured = [found for found in (one.float64, one.float32) if found is not None]
        if _is_given(one) and measured:
            found = _bit_for_bit(one.key, measured, Basis.INPUTS, "reason.data", equal_nan=policy.equal_nan)
            yield found if found.status.passed else _rounded(found, measured)


_ROUNDINGS = 16
"""What a program does to its data before the model (a noise schedule, a normalisation) takes a few operations."""
_OF_EACH = 1e-3
"""Of every element: beside a mask's -1e9 any difference of the others would be rounding."""


def _rounded(found: Judgement, measured: Sequence[Measurement]) -> Judgement:
    """Data that differ by rounding were computed by both programs: worth a look, and no other data."""
    for one in measured:
        exact = one.reference_dtype.startswith(EXACT_KINDS) or one.candidate_dtype.startswith(EXACT_KINDS)
        if (
            exact
            or one.nonfinite_mismatched
            or one.nan_both
            or not one.max_rel <= _OF_EACH
            or not one.max_abs <= _ROUNDINGS * EPS * one.reference.abs_max
        ):
            return found
    return replace(
        found,
        status=Status.SUSPECT,
        reason=message("reason.data.rounded", some=measured[0].differing, all=measured[0].count),
    )


def _is_given(one: FloorEvidence) -> bool:
    """Whether an entry is data. What a second model was fed may be what the first one made: then it has rounding."""
    return one.key.phase == "data" and (one.noise is None or one.noise.differing == 0)


def _bit_for_bit(
    key: Key, measured: Sequence[Measurement], basis: Basis, reason: str, *, equal_nan: bool = False
) -> Judgement:
    """Every element is the same in all of these passes."""

    def is_same(one: Measurement) -> bool:
        return one.differing == 0 and not one.nonfinite_mismatched and (equal_nan or not one.nan_both)

    found = next((one for one in measured if not is_same(one)), measured[0])
    problem = message(reason, some=found.differing, all=found.count)
    if not found.differing and not found.nonfinite_mismatched:
        problem = message("reason.data.nan", some=found.nan_both, all=found.count)
    check = Check("differing", float(found.differing), 0.0, is_same(found))
    return judged(key, (check,), basis, reason=problem)


# ---- tier 2: each layer alone ----------------------------------------------------------------------------------------
def _isolated(one: FloorEvidence, policy: CalibratedPolicy) -> Judgement:
    if _is_exact(one):
        return _exactly(one)
    if one.key.phase == "buffer":
        # Running statistics get the wider limit; what a momentum kept in float32 adds to it is known exactly.
        return _both_in_float64(one, policy.free, policy)
    found = _both_in_float64(one, policy.isolated, policy)
    assert one.float64 is not None
    error, size = one.float64.rmse, one.float64.reference.rms
    noise = 0.0 if one.noise is None else one.noise.rmse
    if found.status.passed and error > policy.suspect * size and noise <= policy.noise_only * size:
        return replace(
            found, status=Status.SUSPECT, reason=message("reason.constant", share=Number(error / size, ".1e"))
        )
    return found


def _containers(alone: Iterable[str]) -> frozenset[str]:
    """Layers that hold other layers which were run alone too."""
    layers = set(alone)
    return frozenset(
        layer
        for layer in layers
        if any(other != layer and (not layer or other.startswith(f"{layer}.")) for other in layers)
    )


# ---- tier 3: the whole program ---------------------------------------------------------------------------------------
def _free(one: FloorEvidence, floor: NoiseFloor, policy: CalibratedPolicy) -> Judgement:
    """One entry, by the best evidence there is for it."""
    if one.key.phase == "lr":
        return _lr(one, floor, policy)
    if _is_exact(one):
        return _exactly(one)
    if one.float64 is not None and one.noise is not None:
        # Second moments are squares of gradients: their relative error is twice as large.
        factor = 2 * policy.free if one.key.phase == "optimizer" else policy.free
        return _both_in_float64(one, factor, policy, resolution=_resolution(one, floor))
    if one.noise is not None and one.float32 is not None:
        if _drifts(one, floor):
            return Judgement(one.key, Status.PASS, (), message("reason.drift"), one.basis)
        narrowed = narrow_type(floor)
        if one.emulated is not None and narrowed is not None:
            return judge_in(one, narrowed)
        return _in_own_precision(one, floor, policy, factor_without_float64(one, policy), Status.FAIL)
    return _assumed(one, policy)


def _finite_as_run(
    judgements: Iterable[Judgement], as_run: Mapping[Key, Measurement | None], policy: CalibratedPolicy
) -> Iterator[Judgement]:
    """The judgements, unless a side as it runs has a NaN or infinity that the float64 run does not know of."""
    for one in judgements:
        measured = as_run.get(one.key) if one.status.passed else None
        problem = None if measured is None else nonfinite_problem(measured, equal_nan=policy.equal_nan)
        if problem is None:
            yield one
        else:
            yield replace(one, status=Status.FAIL, reason=message("reason.as_it_runs", problem=problem))


def _resolution(one: FloorEvidence, floor: NoiseFloor) -> float:
    """How finely an update is known at all in float64: it is the difference of two values of its parameter.

    Where the true gradient is zero one side may move a parameter in its last digit and the other not at all.
    """
    if one.key.phase != "update":
        return 0.0
    parameter = floor.by_key.get(replace(one.key, phase="parameter"))
    return 0.0 if parameter is None or parameter.float64 is None else 2.0**-53 * parameter.float64.reference.abs_max


def _is_exact(one: FloorEvidence) -> bool:
    """Whether a side is of a kind without rounding."""
    best = one.float64 or one.float32
    return best is not None and (
        best.reference_dtype.startswith(EXACT_KINDS) or best.candidate_dtype.startswith(EXACT_KINDS)
    )


def _exactly(one: FloorEvidence) -> Judgement:
    best = one.float64 or one.float32
    assert best is not None
    return _bit_for_bit(one.key, [best], Basis.EXACT, "reason.exact")


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
    check = Check.of("max_abs", error.max_abs, limit)
    reason = message("reason.rates.not_finite")
    if error.worst:
        reason = message("reason.rates", reference=Code(error.worst.reference), candidate=Code(error.worst.candidate))
    return judged(one.key, (check,), Basis.LEARNING_RATE, reason=reason)


def _formulated_otherwise(judgements: list[Judgement]) -> list[Judgement]:
    """The judgements; the gradient of the model's output passes where no gradient behind it differs.

    A loss that takes log-probabilities and one that makes them once more (torch's and paddle's CTC) give the output
    different gradients and everything else the same ones.
    """
    behind: dict[tuple[str, int | None], list[Judgement]] = {}
    trained = set()
    for one in judgements:
        key = one.key
        if key.phase in GRADIENTS and key.path:
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


# ---- tier 4: precision -----------------------------------------------------------------------------------------------
def _precision(floor: NoiseFloor, policy: CalibratedPolicy) -> list[Judgement]:
    """The same function, but computed with less precision?"""
    narrowed = narrow_type(floor)
    found: list[Judgement] = []
    modes: tuple[str, ...] = ("isolated", "injected")
    alone = _containers(one.key.layer_alone for one in floor.of_mode("isolated"))
    found += [*judge_by_scheme(floor, policy.precision, alone)]
    if narrowed is not None:
        found += [*judge_narrow(floor, narrowed, alone)]
        modes = ("isolated",) if keeps_narrow_weights(floor) else modes
    # The injected pass of the candidate needs no float64: that it has the kernels is known from the free run.
    in_float64 = {one.key for one in floor.evidence if one.float64 is not None}
    for mode in modes:
        rows = [one for one in floor.of_mode(mode) if one.noise is not None and _is_wide(one, narrowed)]
        ratios: dict[Series, list[float]] = {}
        for one in rows:
            ratios.setdefault(one.series, []).append(_ratio(one, floor))
        jumps = {one.key: _ratio(one, floor) > JUMP for one in rows}
        for one in rows:
            has_float64 = one.key in in_float64 or one.key.in_run("") in in_float64
            factor = policy.precision if has_float64 else factor_without_float64(one, policy)
            objection = Status.PRECISION if has_float64 else Status.FAIL
            here = _in_own_precision(one, floor, policy, factor, objection)
            # One activation on the other side of a kink makes one step's gradients jump; a defect stays.
            steady = not np.median(ratios[one.series]) <= factor
            kink = not steady and _may_be_kink(one, policy, ("gradient",))
            if _is_excess(here) and kink and follows_a_jump(one.key, jumps):
                here = replace(here, status=Status.PASS, reason=message("reason.jump"))
            found.append(here)
    return found if floor.injected else [*found, *_first_step(floor, policy)]


def _first_step(floor: NoiseFloor, policy: CalibratedPolicy) -> Iterator[Judgement]:
    """Without the reference's gradients (two recordings): what ran before anything could drift.

    Without it a candidate that is right in float64 alone, or whose two passes are of different programs, would pass.
    """
    steps = {one.key.step for one in floor.of_mode("") if one.key.step is not None}
    rows = [one for one in floor.of_mode("") if one.key.step in sorted(steps)[:1] and _tells(one, policy)]
    found = [(one, _in_own_precision(one, floor, policy, policy.precision, Status.PRECISION)) for one in rows]
    flipped = may_have_flipped(filter(is_output, rows)) and any(
        _is_excess(here) and _may_be_kink(one, policy, GRADIENTS) for one, here in found
    )
    jumps = {one.key: _ratio(one, floor) > JUMP for one in rows}
    for one, here in found:
        kink = flipped and _may_be_kink(one, policy, BEHIND_GRADIENTS)
        if _is_excess(here) and kink and follows_a_jump(one.key, jumps):
            yield replace(here, status=Status.PASS, reason=message("reason.kink"))
        else:
            yield here


def _is_wide(one: FloorEvidence, narrowed: str | None) -> bool:
    """Whether the candidate computes this in float32: a narrower type explains errors of another size."""
    if one.float32 is None or one.emulated is not None:
        return False
    # With the reference's gradients an optimizer that keeps float32 weights is as exact as ever; nothing else is.
    return narrowed is None or one.key.phase in ("update", "optimizer", "parameter", "lr")


def _tells(one: FloorEvidence, policy: CalibratedPolicy) -> bool:
    """Whether the precision of an entry can be judged: measured in all ways, not exact, and not rounding alone."""
    if one.float64 is None or one.float32 is None or one.noise is None or one.emulated is not None:
        return False
    if one.key.phase in ("data", "lr") or one.float32.reference_dtype.startswith(EXACT_KINDS):
        return False
    return one.noise.rmse <= policy.noise_only * one.float32.reference.rms


def _is_excess(found: Judgement) -> bool:
    """Whether an error above its limit is all that stands against it; a NaN or infinity is no jump."""
    return not found.status.passed and bool(found.checks)


def _may_be_kink(one: FloorEvidence, policy: CalibratedPolicy, phases: tuple[str, ...]) -> bool:
    return one.key.phase in phases and moved_at_most(one, policy.kink)


def _ratio(one: FloorEvidence, floor: NoiseFloor) -> float:
    """The candidate's error in its own precision, in floors."""
    assert one.float32 is not None
    error, below = one.float32.rmse, floor.in_own_precision(one)
    return error / below if below else (0.0 if error == 0 else math.inf)


def factor_without_float64(one: FloorEvidence, policy: CalibratedPolicy) -> float:
    """How many floors are allowed in the candidate's own precision; what an optimizer makes of its history gets more.

    1 - 0.999 in float32 is off by 215 EPS, and so are Adam's second moments; from the second step on 1 - 0.999^t no
    longer cancels it, and updates and the parameters that began at zero have it too. The first update shows a wrong
    rule by the narrow limit.
    """
    key = one.key
    with_history = key.phase == "optimizer" or (key.phase in ("update", "parameter") and bool(key.step))
    return policy.precision if with_history else policy.without_float64


# ---- an error in floors ----------------------------------------------------------------------------------------------
def _both_in_float64(
    one: FloorEvidence, factor: float, policy: CalibratedPolicy, *, resolution: float = 0.0
) -> Judgement:
    """The error in noise floors, by norm and by largest element."""
    assert one.float64 is not None
    error, size = one.float64, one.float64.reference
    noise_rms, noise_max = (0.0, 0.0)
    if one.noise is not None:
        share = share_of_float32(one.noise.candidate_dtype)
        noise_rms, noise_max = share * one.noise.rmse, share * one.noise.max_abs
    checks = (
        _check("rms", error.rmse, noise_rms + resolution + EPS * size.rms, factor, constant=one.constant * size.rms),
        _check(
            "max", error.max_abs, noise_max + resolution + EPS * size.abs_max, factor,
            constant=one.constant * size.abs_max,
        ),
    )  # fmt: skip
    return _in_floors(one, error, checks, policy)


def _in_own_precision(
    one: FloorEvidence, floor: NoiseFloor, policy: CalibratedPolicy, factor: float, objection: Status
) -> Judgement:
    """The candidate in its own precision against the reference's truth.

    A kernel that is wrong at the edge of a large tensor hardly moves its norm, so the largest element counts too, by
    the widest factor: how rounding falls on one element is chance. Only of what modules give: one activation on the
    other side of zero moves single elements of gradients and of what follows from them.
    """
    assert one.float32 is not None
    assert one.noise is not None
    error, size = one.float32, one.float32.reference
    checks = [_check("rms", error.rmse, floor.in_own_precision(one), factor, constant=one.constant * size.rms)]
    if one.key.phase == "forward" and error.count >= _MANY:
        largest = one.noise.max_abs + floor.rounding(one, size.abs_max)
        checks.append(_check("max", error.max_abs, largest, policy.precision, constant=one.constant * size.abs_max))
    return _in_floors(one, error, tuple(checks), policy, objection)


def _assumed(one: FloorEvidence, policy: CalibratedPolicy) -> Judgement:
    """Nothing was measured: the rounding of one operation, grown with the length of the sum, is assumed."""
    if one.float32 is None:
        return Judgement(one.key, Status.INCOMPARABLE, reason=message("reason.no_measurement"))
    error = one.float32
    floor = EPS * math.sqrt(max(one.reduction, 1)) * error.reference.rms
    found = _in_floors(one, error, (_check("rms", error.rmse, floor, policy.default),), policy)
    return replace(found, evidence=Basis.ASSUMED) if found.checks else found


def _in_floors(
    one: FloorEvidence,
    error: Measurement,
    checks: tuple[Check, ...],
    policy: CalibratedPolicy,
    objection: Status = Status.FAIL,
) -> Judgement:
    """The judgement by these checks, unless a NaN or infinity decides."""
    problem = nonfinite_problem(error, equal_nan=policy.equal_nan)
    if problem is not None:
        return Judgement(one.key, Status.FAIL, (), problem, one.basis)
    return judged(one.key, checks, one.basis, reason=_sentence(checks), otherwise=objection)


def _check(name: str, value: float, floor: float, factor: float, *, constant: float = 0.0) -> Check:
    return Check.of(name, value, factor * floor + constant, floor=floor)


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
