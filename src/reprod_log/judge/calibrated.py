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

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from reprod_log.calibrate import Evidence, NoiseFloor
from reprod_log.errors import UsageError
from reprod_log.judge.policy import EXACT_KINDS
from reprod_log.judge.status import Status
from reprod_log.judge.verdict import (
    Check,
    Judgement,
    Verdict,
    accepted,
    alone_judgements,
    nonfinite_problem,
    overall,
)
from reprod_log.measure.comparison import Comparison
from reprod_log.measure.measurement import Measurement
from reprod_log.record import Key

EPS = 2.0**-24
"""Half a unit in the last place of float32, relative to the value: the rounding of one operation."""


@dataclass(frozen=True)
class CalibratedPolicy:
    """How many noise floors an error may have. Beside each: the largest of correct ports / the smallest of defects."""

    isolated: float = 3.0
    """0.07 (1.83 in a survey of single operators) / 3.8."""
    free: float = 10.0
    """4.0 (all of it one framework's 1e-6 in gradient clipping; 0.08 without) / 112."""
    precision: float = 300.0
    """31 / 731."""
    without_float64: float = 30.0
    """The precision tier when the candidate cannot run in float64; kernels of low quality come near it."""
    suspect: float = 1e-7
    """Relative error in isolation, in float64, from which a passing layer is worth a look: another tiny constant."""
    noise_only: float = 0.05
    """A tensor whose own rounding is this share of it is rounding (true value 0) and not held to relative errors."""
    kink: float = 0.1
    """The largest share of a gradient that an activation on the other side of zero may move; 0.059 was seen."""
    lr: float = 1e-9
    """Learning rates are Python floats: they agree to this share of the largest rate, whatever the precision."""
    default: float = 300.0
    """Factor on the assumed floor when nothing was measured: weak, and said so."""
    allow_unmatched: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    """Patterns of keys whose difference is known and accepted; they pass and say so."""
    equal_nan: bool = False
    name: str = "calibrated"

    def allows_unmatched(self, key: str) -> bool:
        from fnmatch import fnmatchcase

        return any(fnmatchcase(key, pattern) for pattern in self.allow_unmatched)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CalibratedPolicy:
        values = dict(data)
        values["allow_unmatched"] = tuple(values.get("allow_unmatched", ()))
        values["accept"] = tuple(values.get("accept", ()))
        return cls(**values)


def judge_calibrated(comparison: Comparison, floor: NoiseFloor, policy: CalibratedPolicy) -> Verdict:
    """The verdict of the calibrated rule on everything that was compared, or could not be."""
    if any(row.measurement is not None and row.measurement.estimate is not None for row in comparison.rows):
        raise UsageError(
            "the calibrated rule looks at single elements, but of some entries only sketches or statistics were "
            "recorded; record both sides with detail='full', or judge by fixed limits (--limit rel_l2:1e-5)"
        )
    judgements = [*_incomparable(comparison), *_data(floor, policy)]
    isolated = [_isolated(one, policy) for one in _of(floor, "isolated") if one.float64]
    as_run = {row.key: row.measurement for row in comparison.rows}
    free = [
        _finite_as_run(_free(one, floor, policy), as_run.get(one.key), policy)
        for one in _of(floor, "")
        if not _is_given(one) and _is_measured(one)
    ]
    # A layer made of layers is wrong alone when the code between them is; the free run then says the place exactly.
    containers = _containers(isolated)
    whole = [one for one in isolated if _layer_alone(one) in containers]
    parts = [one for one in isolated if _layer_alone(one) not in containers]
    judgements = accepted([*judgements, *parts, *free, *whole], policy.accept)
    if all(one.status.passed for one in judgements):
        judgements = _merged(judgements, _precision(floor, policy))
    lonely, allowed = alone_judgements(comparison, policy.allows_unmatched)
    judgements = accepted([*judgements, *lonely], policy.accept)
    return Verdict(overall(judgements), tuple(judgements), allowed)


def _of(floor: NoiseFloor, mode: str) -> Iterator[Evidence]:
    return (one for one in floor.evidence if one.mode == mode)


def _incomparable(comparison: Comparison) -> list[Judgement]:
    return [
        Judgement(row.key, Status.INCOMPARABLE, reason=row.incomparable)
        for row in comparison.rows
        if row.measurement is None
    ]


def _isolated(one: Evidence, policy: CalibratedPolicy) -> Judgement:
    """Tier 2 for one entry."""
    if Key.parse(one.key).phase == "buffer":
        # Running statistics get the wider limit: paddle keeps momentum in float32, and 1 - 0.9 is then off by 4 EPS.
        return _wide(one, policy.free, policy, suspect=False)
    return _wide(one, policy.isolated, policy, suspect=True)


def _narrow_factor(one: Evidence, policy: CalibratedPolicy) -> float:
    """Without float64, what an optimizer makes of its history gets the wider limit.

    1 - 0.999 in float32 is off by 215 EPS, and so are Adam's second moments; from the second step on 1 - 0.999^t no
    longer cancels it, and updates and the parameters that began at zero have it too. The first update shows a wrong
    rule by the narrow limit.
    """
    key = Key.parse(one.key)
    with_history = key.phase == "optimizer" or (key.phase in ("update", "parameter") and bool(key.step))
    return policy.precision if with_history else policy.without_float64


def _containers(judgements: list[Judgement]) -> frozenset[str]:
    """Layers that hold other layers which were run alone too."""
    layers = {_layer_alone(one) for one in judgements}
    return frozenset(
        layer
        for layer in layers
        if any(other != layer and (not layer or other.startswith(f"{layer}.")) for other in layers)
    )


def _layer_alone(one: Judgement) -> str:
    """The layer that was run alone when the entry was recorded."""
    key = Key.parse(one.key)
    if key.phase in ("forward", "backward"):
        return key.path
    layer = key.role.partition("of ")[2]
    return "" if layer == "model" else layer


def _is_measured(one: Evidence) -> bool:
    """Whether the pair could be measured at all; if not, it is said to be incomparable."""
    return one.float32 is not None or one.float64 is not None


def _is_given(one: Evidence) -> bool:
    """Whether an entry is data. What a second model was fed may be what the first one made: then it has rounding."""
    return Key.parse(one.key).phase == "data" and (one.noise is None or one.noise.differing == 0)


def _data(floor: NoiseFloor, policy: CalibratedPolicy) -> Iterator[Judgement]:
    """Tier 1: what goes in is bit-identical; with other data no later difference means anything."""
    for one in _of(floor, ""):
        if _is_given(one) and (found := one.float64 or one.float32) is not None:
            same = found.differing == 0 and not found.nonfinite_mismatched and (policy.equal_nan or not found.nan_both)
            check = Check("differing", float(found.differing), 0.0, same)
            reason = "" if same else f"the two sides were fed different data: {found.differing} of {found.count} differ"
            yield Judgement(one.key, Status.PASS if same else Status.FAIL, (check,), reason, "inputs, bit for bit")


def _finite_as_run(judged: Judgement, measured: Measurement | None, policy: CalibratedPolicy) -> Judgement:
    """The judgement, unless the candidate as it runs has a NaN or infinity that the float64 run does not know of."""
    if measured is None or not judged.status.passed:
        return judged
    problem = nonfinite_problem(measured, equal_nan=policy.equal_nan)
    return replace(judged, status=Status.FAIL, reason=f"as it runs: {problem}") if problem else judged


def _free(one: Evidence, floor: NoiseFloor, policy: CalibratedPolicy) -> Judgement:
    """Tier 3 for one entry, by the best evidence there is for it."""
    key = Key.parse(one.key)
    if key.phase == "lr":
        return _lr(one, floor, policy)
    best = one.float64 or one.float32
    if best is not None and best.reference_dtype.startswith(EXACT_KINDS):
        same = best.differing == 0 and not best.nonfinite_mismatched
        reason = "" if same else f"{best.differing} of {best.count} values differ, and this kind has no rounding"
        check = Check("differing", float(best.differing), 0.0, same)
        return Judgement(one.key, Status.PASS if same else Status.FAIL, (check,), reason, "exact kind")
    if one.float64 is not None and one.noise is not None:
        # Second moments are squares of gradients: their relative error is twice as large.
        factor = 2 * policy.free if key.phase == "optimizer" else policy.free
        return _wide(one, factor, policy, suspect=False)
    if one.noise is not None and one.float32 is not None:
        if _drifts(one, floor):
            reason = "without float64 a free run drifts by chance; judged with the reference's gradients instead"
            return Judgement(one.key, Status.PASS, (), reason, one.basis)
        return _narrow(one, floor, policy, _narrow_factor(one, policy), Status.FAIL)
    return _assumed(one, policy)


def _drifts(one: Evidence, floor: NoiseFloor) -> bool:
    """Whether an entry comes after the first update and a run with the reference's gradients can speak for it.

    In float32 one activation on the other side of a kink makes all that follows differ by far more than rounding.
    """
    key = Key.parse(one.key)
    # What is clipped there is the reference's gradient; whether it is clipped alike, the update shows.
    spoken_for = bool(floor.injected) if key.phase == "clip" else str(key.in_run("injected")) in floor.injected
    return bool(key.step) and spoken_for


def _wide(one: Evidence, factor: float, policy: CalibratedPolicy, *, suspect: bool) -> Judgement:
    """Both in float64: the error in noise floors, by norm and by largest element."""
    assert one.float64 is not None
    error, noise = one.float64, one.noise
    bad = _nonfinite(one, error, policy)
    if bad is not None:
        return bad
    noise_rms, noise_max = (noise.rmse, noise.max_abs) if noise is not None else (0.0, 0.0)
    size = error.reference
    checks = (
        _check("rms", error.rmse, noise_rms + EPS * size.rms, factor),
        _check("max", error.max_abs, noise_max + EPS * size.abs_max, factor),
    )
    if not all(check.passed for check in checks):
        return Judgement(one.key, Status.FAIL, checks, _sentence(checks), one.basis)
    if suspect and error.rmse > policy.suspect * size.rms and noise_rms <= policy.noise_only * size.rms:
        share = error.rmse / size.rms if size.rms else math.inf
        reason = f"{share:.1e} relative in float64: within float32 rounding, but a constant may differ"
        return Judgement(one.key, Status.SUSPECT, checks, reason, one.basis)
    return Judgement(one.key, Status.PASS, checks, "", one.basis)


def _narrow(one: Evidence, floor: NoiseFloor, policy: CalibratedPolicy, factor: float, objection: Status) -> Judgement:
    """The candidate in its own precision against the reference's truth."""
    assert one.float32 is not None
    error = one.float32
    bad = _nonfinite(one, error, policy)
    if bad is not None:
        return bad
    check = _check("rms", error.rmse, _pooled_floor(one, floor), factor)
    if check.passed:
        return Judgement(one.key, Status.PASS, (check,), "", one.basis)
    return Judgement(one.key, objection, (check,), _sentence((check,)), one.basis)


def _precision(floor: NoiseFloor, policy: CalibratedPolicy) -> list[Judgement]:
    """Tier 4: the same function, but computed with less precision?"""
    found = []
    # The injected pass of the candidate needs no float64: that it has the kernels is known from the free run.
    wide = {one.key for one in floor.evidence if one.float64 is not None}
    for mode in ("isolated", "injected"):
        rows = [one for one in _of(floor, mode) if one.float32 is not None and one.noise is not None]
        ratios: dict[tuple[str, str, str], list[float]] = {}
        for one in rows:
            ratios.setdefault(_series(one), []).append(_ratio(one, floor))
        for one in rows:
            has_float64 = one.key in wide or str(Key.parse(one.key).in_run("")) in wide
            factor = policy.precision if has_float64 else _narrow_factor(one, policy)
            objection = Status.PRECISION if has_float64 else Status.FAIL
            judged = _narrow(one, floor, policy, factor, objection)
            # One activation on the other side of a kink makes one step's gradients jump; a defect stays.
            steady = median(ratios[_series(one)]) > factor
            if judged.status.passed or steady or not _may_be_kink(one, policy):
                found.append(judged)
            else:
                reason = "jumps at this step and not at the others, as when an activation lands on the other side"
                found.append(Judgement(one.key, Status.PASS, judged.checks, reason, one.basis))
    return found if floor.injected else [*found, *_first_step(floor, policy)]


def _first_step(floor: NoiseFloor, policy: CalibratedPolicy) -> Iterator[Judgement]:
    """Tier 4 without the reference's gradients (two recordings): what ran before anything could drift.

    Without it a candidate that is right in float64 alone, or whose two passes are of different programs, would pass.
    """
    steps = [key.step for one in _of(floor, "") if (key := Key.parse(one.key)).step is not None]
    rows = [one for one in _of(floor, "") if Key.parse(one.key).step == min(steps, default=0) and _tells(one, policy)]
    judged = [(one, _narrow(one, floor, policy, policy.precision, Status.PRECISION)) for one in rows]
    flipped = any(
        not found.status.passed and _may_be_kink(one, policy, phases=("gradient", "backward")) for one, found in judged
    )
    for one, found in judged:
        if found.status.passed or not (flipped and _may_be_kink(one, policy, phases=_BEHIND_GRADIENTS)):
            yield found
        else:
            reason = "no more than what an activation on the other side does to gradients"
            yield Judgement(one.key, Status.PASS, found.checks, reason, one.basis)


_BEHIND_GRADIENTS = ("gradient", "backward", "clip", "update", "optimizer", "parameter")


def _tells(one: Evidence, policy: CalibratedPolicy) -> bool:
    """Whether the precision of an entry can be judged: measured in all ways, not exact, and not rounding alone."""
    if one.float64 is None or one.float32 is None or one.noise is None or Key.parse(one.key).phase in ("data", "lr"):
        return False
    if one.float32.reference_dtype.startswith(EXACT_KINDS):
        return False
    return one.noise.rmse <= policy.noise_only * one.float32.reference.rms


def _may_be_kink(one: Evidence, policy: CalibratedPolicy, *, phases: tuple[str, ...] = ("gradient",)) -> bool:
    assert one.float32 is not None
    small = one.float32.rmse <= policy.kink * one.float32.reference.rms
    return small and Key.parse(one.key).phase in phases


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


def _series(one: Evidence) -> tuple[str, str, str]:
    """The same tensor over the steps."""
    key = Key.parse(one.key)
    return key.phase, key.path, key.role


def _ratio(one: Evidence, floor: NoiseFloor) -> float:
    below = _pooled_floor(one, floor)
    error = one.float32.rmse if one.float32 is not None else math.nan
    return error / below if below else (0.0 if error == 0 else math.inf)


def _pooled_floor(one: Evidence, floor: NoiseFloor) -> float:
    """The floor with the length of sums in it; for single numbers the worst noise of their kind over all steps."""
    assert one.float32 is not None
    noise, size = one.noise, one.float32.reference
    rms = noise.rmse if noise is not None else 0.0
    if one.float32.count == 1:
        kind = _series(one)
        peers = [other for other in floor.evidence if _series(other) == kind and other.noise is not None]
        shares = [
            other.noise.rmse / other.noise.reference.rms
            for other in peers
            if other.noise is not None and other.noise.reference.rms
        ]
        rms = max([rms, *(share * size.rms for share in shares)])
    return rms + EPS * math.sqrt(max(one.reduction, 1)) * (size.rms + _spread(one, floor))


_STATISTICS = (("running_mean", "running_var"), ("_mean", "_variance"))


def _spread(one: Evidence, floor: NoiseFloor) -> float:
    """For a running mean, the deviation of what was averaged: a mean of zero is rounded like the values it sums."""
    for mean, variance in _STATISTICS:
        key = Key.parse(one.key)
        if key.phase == "buffer" and key.path.endswith(mean):
            sibling = str(replace(key, path=key.path.removesuffix(mean) + variance))
            found = floor.by_key.get(sibling)
            if found is not None and found.float32 is not None:
                return math.sqrt(found.float32.reference.rms)
    return 0.0


def _lr(one: Evidence, floor: NoiseFloor, policy: CalibratedPolicy) -> Judgement:
    error = one.float64 or one.float32
    if error is None:
        return Judgement(one.key, Status.INCOMPARABLE, reason="no learning rate to compare")
    rates = [
        other_error.reference.abs_max
        for other in _of(floor, one.mode)
        if Key.parse(other.key).phase == "lr" and (other_error := other.float64 or other.float32) is not None
    ]
    limit = policy.lr * max(rates, default=0.0)
    check = Check("max_abs", error.max_abs, limit, bool(error.max_abs <= limit))
    if check.passed:
        return Judgement(one.key, Status.PASS, (check,), "", "learning rate in float64")
    values = f"reference {error.worst.reference}, candidate {error.worst.candidate}" if error.worst else "not finite"
    return Judgement(one.key, Status.FAIL, (check,), f"the learning rates differ: {values}", "learning rate in float64")


def _assumed(one: Evidence, policy: CalibratedPolicy) -> Judgement:
    """Nothing was measured: the rounding of one operation, grown with the length of the sum, is assumed."""
    if one.float32 is None:
        return Judgement(one.key, Status.INCOMPARABLE, reason="no measurement")
    bad = _nonfinite(one, one.float32, policy)
    if bad is not None:
        return bad
    error, size = one.float32, one.float32.reference
    floor = EPS * math.sqrt(max(one.reduction, 1)) * size.rms
    check = _check("rms", error.rmse, floor, policy.default)
    basis = "assumed rounding; record a float64 run of the reference for a real floor"
    reason = "" if check.passed else _sentence((check,))
    return Judgement(one.key, Status.PASS if check.passed else Status.FAIL, (check,), reason, basis)


def _nonfinite(one: Evidence, error: Measurement, policy: CalibratedPolicy) -> Judgement | None:
    problem = nonfinite_problem(error, equal_nan=policy.equal_nan)
    return Judgement(one.key, Status.FAIL, (), problem, one.basis) if problem else None


def _check(name: str, value: float, floor: float, factor: float) -> Check:
    limit = factor * floor
    return Check(name, value, limit, bool(value <= limit), floor=floor)


def _sentence(checks: tuple[Check, ...]) -> str:
    parts = []
    for check in checks:
        if not check.passed and check.floor is not None:
            times = check.value / check.floor if check.floor else math.inf
            parts.append(
                f"{check.metric} error {check.value:.3g} is {times:.3g} times the rounding floor {check.floor:.3g} "
                f"(allowed {check.limit / check.floor if check.floor else 0:.3g})"
            )
    return "; ".join(parts)
