"""The calibrated verdict: rounding told from defect by the reference's own rounding, without a tuned threshold.

Both sides are compared in float64, where a correct port agrees to many more digits than float32 has, and the tolerance
is what float32 rounding does to the reference itself. Four tiers, in this order; the first that objects decides:

    1  data       every input is bit-identical
    2  isolated   each layer alone on the reference's input, in float64
    3  free       the whole program, in float64
    4  precision  each layer alone, and the program with the reference's gradients, in the candidate's own precision

docs/verdict.md has the measurements behind the rule and its constants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from reprod_log.errors import UsageError
from reprod_log.measure.comparison import Comparison
from reprod_log.measure.measurement import Measurement
from reprod_log.messages import Code, Message, message
from reprod_log.recording import Key
from reprod_log.verdict.calibrated_policy import CalibratedPolicy
from reprod_log.verdict.evidence import FloorEvidence
from reprod_log.verdict.fixed import (
    Check,
    Judgement,
    Verdict,
    accepted,
    alone_judgements,
    judge,
    nonfinite_problem,
    require_complete,
    verdict_on,
)
from reprod_log.verdict.floors import assumed, narrow, wide
from reprod_log.verdict.noise_floor import NoiseFloor
from reprod_log.verdict.policy import EXACT_KINDS, Policy
from reprod_log.verdict.precision import narrow_factor, precision_tier
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
    # A layer made of layers is wrong alone when the code between them is; the free run then says the place exactly.
    containers = _containers(isolated)
    whole = [one for one in isolated if one.key.layer_alone in containers]
    parts = [one for one in isolated if one.key.layer_alone not in containers]
    judgements = accepted([*data, *parts, *free, *whole, *further], policy.accept)
    if all(one.status.passed for one in judgements):
        judgements = _merged(judgements, _formulated_otherwise(precision_tier(floor, policy)))
    lonely, allowed = alone_judgements(comparison, policy.allows_unmatched)
    return verdict_on(accepted(judgements, policy.accept), accepted(lonely, policy.accept), allowed)


def _incomparable(comparison: Comparison) -> dict[str, list[Judgement]]:
    """What could not be measured, by the pass that it belongs to; data by itself."""
    found: dict[str, list[Judgement]] = {}
    for row in comparison.rows:
        if row.measurement is None:
            key = row.key
            tier = "data" if key.phase == "data" and not key.run else key.run
            found.setdefault(tier, []).append(Judgement(row.key, Status.INCOMPARABLE, reason=row.incomparable))
    return found


def _in_order(judgements: list[Judgement], comparison: Comparison) -> list[Judgement]:
    """Judgements in the order in which the program made their entries."""
    order = {row.key: place for place, row in enumerate(comparison.rows)}
    if not all(one.key in order for one in judgements):
        return judgements
    return sorted(judgements, key=lambda one: order[one.key])


def _isolated(one: FloorEvidence, policy: CalibratedPolicy) -> Judgement:
    """Tier 2 for one entry."""
    if one.key.phase == "buffer":
        # Running statistics get the wider limit; what a momentum kept in float32 adds to it is known exactly.
        return wide(one, policy.free, policy)
    return wide(one, policy.isolated, policy, suspect=True)


def _containers(judgements: list[Judgement]) -> frozenset[str]:
    """Layers that hold other layers which were run alone too."""
    layers = {one.key.layer_alone for one in judgements}
    return frozenset(
        layer
        for layer in layers
        if any(other != layer and (not layer or other.startswith(f"{layer}.")) for other in layers)
    )


def _is_measured(one: FloorEvidence) -> bool:
    """Whether the pair could be measured at all; if not, it is said to be incomparable."""
    return one.float32 is not None or one.float64 is not None


def _is_given(one: FloorEvidence) -> bool:
    """Whether an entry is data. What a second model was fed may be what the first one made: then it has rounding."""
    return one.key.phase == "data" and (one.noise is None or one.noise.differing == 0)


def _data(floor: NoiseFloor, policy: CalibratedPolicy) -> Iterator[Judgement]:
    """Tier 1: what goes in is bit-identical; with other data no later difference means anything."""
    for one in floor.of_mode(""):
        if _is_given(one) and (found := one.float64 or one.float32) is not None:
            same = found.differing == 0 and not found.nonfinite_mismatched and (policy.equal_nan or not found.nan_both)
            check = Check("differing", float(found.differing), 0.0, same)
            reason = None if same else _problem_of_data(found)
            yield Judgement(one.key, Status.PASS if same else Status.FAIL, (check,), reason, Basis.INPUTS)


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
    best = one.float64 or one.float32
    if best is not None and best.reference_dtype.startswith(EXACT_KINDS):
        same = best.differing == 0 and not best.nonfinite_mismatched
        reason = None if same else message("reason.exact", some=best.differing, all=best.count)
        check = Check("differing", float(best.differing), 0.0, same)
        return Judgement(one.key, Status.PASS if same else Status.FAIL, (check,), reason, Basis.EXACT)
    if one.float64 is not None and one.noise is not None:
        # Second moments are squares of gradients: their relative error is twice as large.
        factor = 2 * policy.free if key.phase == "optimizer" else policy.free
        return wide(one, factor, policy)
    if one.noise is not None and one.float32 is not None:
        if _drifts(one, floor):
            return Judgement(one.key, Status.PASS, (), message("reason.drift"), one.basis)
        return narrow(one, floor, policy, narrow_factor(one, policy), Status.FAIL)
    return assumed(one, policy)


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
