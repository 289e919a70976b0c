"""Passes of one side that are not of one program: then a difference of two programs would count as rounding.

The plain pass of each side is held against the float64 pass at every step, by what the other side shows there: two
programs that compute the same thing in the same precision are about equally far from the truth. A float64 pass that was
recorded with the other side's script, an edited file or other data leaves one side much farther from it than the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from reprod_log.measure.measurement import Measurement
from reprod_log.recording import Key
from reprod_log.verdict.calibrated import factor_without_float64
from reprod_log.verdict.evidence import FloorEvidence, Series
from reprod_log.verdict.floor import NoiseFloor
from reprod_log.verdict.kinks import BEHIND_GRADIENTS, GRADIENTS, JUMP, follows_a_jump, is_output, may_have_flipped
from reprod_log.verdict.policy import CalibratedPolicy
from reprod_log.verdict.status import Basis

_LEAST_SHARE = 0.01
"""Relative error of a first step that rounding to float32 does not reach: outputs are off by 1e-7 to 1e-5 there."""
_COARSE_SHARE = {"float16": 0.06, "bfloat16": 0.3, "float8": 1.0}
"""The same for half precision: some fifty roundings of one operation."""

_SUDDEN = 1e-3
"""Relative error of one entry of a later step that drift reaches only where something before it is off as well."""
_GROWTH = 100.0
"""How many times the largest relative error before it such an entry has."""

_BEYOND_ROUNDING = 1e-5
"""Relative distance of the reference's two passes from which a good part of it is no business of float64."""
_OF_THE_NOISE = 0.5
"""Distance of both float64 passes in units of that: 0.05 was the largest of correct ports."""
_IN_FLOAT64 = 1e-10
"""Median relative distance of two float64 passes in which nothing is computed in float32."""

SideName = Literal["reference", "candidate"]


@dataclass(frozen=True)
class OddPass:
    """A side whose plain pass and float64 pass contradict each other, and the entry that shows it."""

    side: SideName
    how: Literal["data", "rates", "outputs", "apart", "truths", "repeats"]
    key: Key
    share: float
    """How far apart they are, relative to the entry's size."""
    times: float = math.inf
    """That in units of what the other side shows."""


def odd_passes(floor: NoiseFloor, policy: CalibratedPolicy) -> Iterator[OddPass]:
    """The sides whose passes are not of one program, each once."""
    again = _other_outputs([one for one in floor.of_mode("") if one.basis is Basis.REPEATS], policy)
    if again is not None:
        yield replace(again, how="repeats")
    rows = [one for one in floor.of_mode("") if one.in_float64]
    found = _other_data(rows) or _other_rates(rows, policy) or _other_outputs(rows, policy)
    if found is not None:
        yield found
        return
    names: tuple[SideName, SideName] = ("reference", "candidate")
    apart = [found for side in names if (found := _apart(side, rows, floor, policy)) is not None]
    truths = None if apart else _other_truths(rows, policy)
    yield from apart if truths is None else (truths,)


# What is exact, or far beyond rounding, needs no other side


def _other_data(rows: Iterable[FloorEvidence]) -> OddPass | None:
    for one in rows:
        if one.key.phase == "data" and _is_other(one):
            return OddPass("reference", "data", one.key, _noise(one).rel_l2)
    return None


def _other_rates(rows: list[FloorEvidence], policy: CalibratedPolicy) -> OddPass | None:
    """Learning rates are Python floats in every precision."""
    rates = [one for one in rows if one.key.phase == "lr"]
    limit = policy.lr * max((_noise(one).reference.abs_max for one in rates), default=0.0)
    other = next((one for one in rates if not _noise(one).max_abs <= limit), None)
    return None if other is None else OddPass("reference", "rates", other.key, _noise(other).rel_l2)


def _other_outputs(rows: list[FloorEvidence], policy: CalibratedPolicy) -> OddPass | None:
    """Only of the first step, as later ones may drift apart by chance.

    A single tensor may be nothing but rounding (its true value is zero), therefore it takes half of them.
    """
    first = [one for one in rows if one.key.step in (None, 0) and _is_floating(one)]
    outputs = [one for one in first if one.key.phase == "forward"]
    # Rounding of a loss is a part of the outputs that it is made from, even where these cancel out.
    scale = max((_noise(one).reference.rms for one in outputs), default=0.0)
    losses = [one for one in first if one.key.phase == "loss" and _noise(one).rmse > _bound(one) * scale]
    gradients = [one for one in first if one.key.phase == "gradient"]
    largest = max((_noise(one).reference.rms for one in gradients), default=0.0)
    gradients = [one for one in gradients if _noise(one).reference.rms > _BEYOND_ROUNDING * largest]
    for found, least in ((outputs, 0.0), (losses, 0.0), (gradients, policy.kink)):
        if found and _median(_noise(one).rel_l2 / max(_bound(one), least) for one in found) > 1:
            worst = max(found, key=lambda one: _noise(one).rel_l2)
            return OddPass("reference", "outputs", worst.key, _noise(worst).rel_l2)
    return None


def _other_truths(rows: list[FloorEvidence], policy: CalibratedPolicy) -> OddPass | None:
    """The float64 passes of both sides differ by what is meant to be the rounding of float32.

    Rounding that is amplified, or a kink, parts the plain passes; it does not part the float64 passes as well.
    """
    telling = [
        (one, one.float64, one.float64.reference.rms)
        for one in rows
        if one.float64 is not None and _is_floating(one) and one.key.phase != "lr" and not _is_coarse(_noise(one))
    ]
    # Where the true value is zero, a side that converts to float32 itself is as far from it as float32 is.
    shares = [measured.rmse / size for _, measured, size in telling if size > 0]
    most = math.inf if shares and _median(shares) < _IN_FLOAT64 else policy.noise_only
    for one, measured, size in telling:
        noise = _noise(one).rmse
        if _BEYOND_ROUNDING * size < noise <= most * size and (
            measured.rmse - one.constant * size > _OF_THE_NOISE * noise
        ):
            return OddPass("reference", "truths", one.key, measured.rmse / size if size else math.inf)
    return None


def _is_coarse(measured: Measurement) -> bool:
    """Whether a pass is in half precision, which is farther from the truth than float32 by nature."""
    return measured.candidate_dtype.startswith(tuple(_COARSE_SHARE))


def _is_other(one: FloorEvidence) -> bool:
    if _is_floating(one):
        return _noise(one).rel_l2 > _bound(one) or _noise(one).nonfinite_mismatched > 0
    # What a second model is fed may be chosen by the first one's outputs: a tie may then fall the other way.
    return _noise(one).differing > _LEAST_SHARE * _noise(one).count


def _is_floating(one: FloorEvidence) -> bool:
    return _noise(one).candidate_dtype.startswith(("float", "bfloat", "complex"))


def _bound(one: FloorEvidence) -> float:
    dtype = _noise(one).candidate_dtype
    return next((bound for name, bound in _COARSE_SHARE.items() if dtype.startswith(name)), _LEAST_SHARE)


def _noise(one: FloorEvidence) -> Measurement:
    assert one.noise is not None
    return one.noise


# What only the other side can tell


@dataclass(frozen=True)
class _Distance:
    """How far one side's plain pass is from the reference's float64 pass at one entry, and the other side's."""

    one: FloorEvidence
    own: float
    floor: float
    """What rounding does there by the other side."""
    size: float
    other: float

    @property
    def share(self) -> float:
        return self.own / self.size

    @property
    def times(self) -> float:
        return self.own / self.floor


def _apart(side: SideName, rows: list[FloorEvidence], floor: NoiseFloor, policy: CalibratedPolicy) -> OddPass | None:
    """The first entry that shows a side's passes to be of two programs.

    The candidate's float64 pass agrees with the reference's where the verdict passes, so either may stand for it.
    """
    telling = [one for one in rows if one.key.phase != "lr" and _is_floating(one) and one.float32 is not None]
    # A quantised candidate is held to its own scheme.
    if any(one.declared is not None or _is_coarse(_measured(one, side)) for one in telling):
        return None
    distances = list(_distances(side, telling, floor, policy))
    groups: dict[int | None, dict[str, list[_Distance]]] = {}
    for one in distances:
        groups.setdefault(one.one.key.step, {}).setdefault(one.one.key.phase, []).append(one)
    steps = sorted(groups, key=lambda step: -1 if step is None else step)
    found = [
        _first_step(groups[step], policy) if not place else _later_step(groups[step], policy)
        for place, step in enumerate(steps)
    ]
    odd = next((one for one in (*found, _sudden(side, telling, distances, policy)) if one is not None), None)
    return None if odd is None else OddPass(side, "apart", odd.one.key, odd.share, odd.times)


def _distances(
    side: SideName, rows: list[FloorEvidence], floor: NoiseFloor, policy: CalibratedPolicy
) -> Iterator[_Distance]:
    other: SideName = "candidate" if side == "reference" else "reference"
    usual: dict[tuple[int | None, str], list[float]] = {}
    single: dict[Series, float] = {}
    for one in rows:
        size = _measured(one, other).reference.rms
        if size > 0:
            share = _measured(one, other).rmse / size
            usual.setdefault((one.key.step, one.key.phase), []).append(share)
            single[one.series] = max(single.get(one.series, 0.0), share)
    medians = {group: _median(shares) for group, shares in usual.items()}
    for one in rows:
        measured, size = _measured(one, other), _measured(one, other).reference.rms
        if not size > 0 or not measured.rmse <= policy.noise_only * size:
            # Its true value is zero, or the other side does not measure it.
            continue
        # A kernel may be exact at one entry, and one loss may hit its rounded value by luck.
        pooled = medians[one.key.step, one.key.phase]
        if measured.count == 1:
            pooled = max(pooled, single[one.series])
        below = max(measured.rmse, pooled * size) + floor.rounding(one, size) + one.constant * size
        if side == "candidate":
            if one.float64 is None:
                # Without a float64 pass of its own it is judged by this distance, and cannot contradict itself.
                continue
            # What differs in float64 too (an accepted difference) does not contradict its passes.
            below += one.float64.rmse
        yield _Distance(one, _measured(one, side).rmse, below, size, measured.rmse)


def _first_step(phases: dict[str, list[_Distance]], policy: CalibratedPolicy) -> _Distance | None:
    """Before the first update nothing drifts: every entry counts, but for activations on the other side of a kink."""
    everything = [one for found in phases.values() for one in found]
    odd = [one for one in everything if one.times > factor_without_float64(one.one, policy)]
    gradients = [one for one in odd if one.one.key.phase in GRADIENTS]
    # A kink moves the gradients before it, and not those between it and the loss.
    last = _last_layer(phases)
    outputs = [one.one for one in phases.get("forward", ()) if is_output(one.one)]
    flipped = bool(gradients) and last is not None and all(_layer(one) != last for one in gradients)
    flipped = flipped and may_have_flipped(outputs)
    jumps = {one.one.key: one.times > JUMP for one in everything}
    for one in odd:
        kink = flipped and one.one.key.phase in BEHIND_GRADIENTS and one.share <= policy.kink
        if not (kink and follows_a_jump(one.one.key, jumps)):
            return one
    return None


def _last_layer(phases: dict[str, list[_Distance]]) -> str | None:
    """The layer with a gradient that runs last."""
    trained = {_layer(one) for one in phases.get("gradient", ())}
    ran = [_layer(one) for one in phases.get("forward", ()) if _layer(one) in trained]
    return ran[-1] if ran else None


def _layer(one: _Distance) -> str:
    key = one.one.key
    return key.path if key.phase in ("forward", "backward") else key.path.rpartition(".")[0]


def _later_step(phases: dict[str, list[_Distance]], policy: CalibratedPolicy) -> _Distance | None:
    """Later steps drift by chance, on one side sooner than on the other: only what drift does not reach counts."""
    for found in phases.values():
        if (
            _median(one.share for one in found) > _LEAST_SHARE
            and _median(one.times for one in found) > policy.precision
        ):
            return max(found, key=lambda one: one.times)
    return None


def _sudden(
    side: SideName, rows: list[FloorEvidence], distances: list[_Distance], policy: CalibratedPolicy
) -> _Distance | None:
    """The first entry that is far off although nothing before it is: drift does not begin so, but for kinks.

    What brings drift from one step to the next must have been recorded.
    """
    moved = {one.key.step for one in rows if one.key.phase in ("update", "parameter")}
    by_key = {one.one.key: one for one in distances}
    jumps = {key: one.times > JUMP for key, one in by_key.items()}
    flips: dict[int | None, list[FloorEvidence]] = {}
    for one in filter(is_output, rows):
        flips.setdefault(one.key.step, []).append(one)
    measured = anything = 0.0
    for one in rows:
        own, size = _measured(one, side).rmse, _measured(one, side).reference.rms
        share = own / size if size > 0 else math.inf if own else 0.0
        found = by_key.get(one.key)
        # What is zero but for rounding moves the updates of its own parameter, and no output.
        before = anything if one.key.phase in BEHIND_GRADIENTS else measured
        seen = one.key.step is not None and one.key.step - 1 in moved
        if (
            found is not None
            and seen
            and share > _SUDDEN
            and share > _GROWTH * before
            and found.times > policy.precision
        ):
            kink = one.key.phase in GRADIENTS and share <= policy.kink and follows_a_jump(one.key, jumps)
            if not (kink and may_have_flipped(flips.get(one.key.step, ()))):
                return found
        anything = max(anything, share)
        measured = measured if found is None else max(measured, share)
    return None


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def _measured(one: FloorEvidence, side: SideName) -> Measurement:
    """A side's plain pass against the reference's float64 pass."""
    found = one.noise if side == "reference" else one.float32
    assert found is not None
    return found
