"""A candidate in a type narrower than float32: does that type explain its error?

The tolerance is what the type does to the reference itself, which was run in it (`FloorEvidence.emulated`). That noise
is one well-known rounding process, not an unknown quality of kernels, so correct candidates lie in a narrow band and
the factors are small. A difference below them cannot be seen in this type; in float64 it can.

docs/precision.md has the measurements behind the constants.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from reprod_log.messages import Number, message
from reprod_log.verdict.evidence import NARROW, FloorEvidence
from reprod_log.verdict.floor import NoiseFloor
from reprod_log.verdict.judgement import Check, Judgement, judged
from reprod_log.verdict.kinks import GRADIENTS, moved_at_most
from reprod_log.verdict.status import Status

_FORWARD = 2.0
"""Outputs and losses, alone and in the whole program: 1.35 was the largest of correct candidates."""
_BACKWARD = 3.0
"""Gradients of a layer alone: 1.87. Layers made of layers have kinks inside, and are not held to it."""
_FREE_BACKWARD = 6.0
"""Gradients of the whole program: 5.3, by activations on the other side of a kink; beyond it they are suspect."""
_KINKS = 0.5
"""The largest share of a gradient that activations on the other side move: 0.24 in correct networks with batch norm."""
_DECLARED = 0.25
"""A quantised layer alone against its own declaration: 0.17 was the largest of correct engines."""
_GUARD = 0.3
"""Of the rounding of one operation, relative to the values: kernels round at other places than the emulation."""
_FEW = 16
"""A tensor of fewer numbers may be off by one whole rounding in each."""


def narrow_type(floor: NoiseFloor) -> str | None:
    """The type narrower than float32 that the candidate computes in and the reference was run in; None: there is none.

    Under autocast only some entries are of it.
    """
    kinds = (one.float32.candidate_dtype for one in floor.evidence if one.emulated is not None and one.float32)
    return next((kind for kind in kinds if kind in NARROW), None)


def keeps_narrow_weights(floor: NoiseFloor) -> bool:
    """Whether the weights themselves are of the narrow type: updates smaller than their last digit are then lost."""
    return any(
        one.key.phase == "parameter" and one.float32 is not None and one.float32.candidate_dtype in NARROW
        for one in floor.evidence
    )


def judge_narrow(floor: NoiseFloor, dtype: str, containers: Collection[str]) -> Iterator[Judgement]:
    """The entries that were run in the candidate's narrow type on both sides, by what the type explains.

    Of the whole program only the first step: an update in a narrow type loses what is smaller than its last digit.
    """
    steps = sorted({one.key.step for one in floor.of_mode("") if one.key.step is not None})[:1]
    for one in floor.evidence:
        if one.emulated is None or one.float32 is None or one.key.phase in ("data", "lr"):
            continue
        if one.mode == "" and one.key.step not in (None, *steps):
            continue
        factor = _factor(one, containers)
        if factor is not None:
            yield judge_in(one, dtype, factor)


def _factor(one: FloorEvidence, containers: Collection[str]) -> float | None:
    phase = one.key.phase
    if phase in ("forward", "loss"):
        return _FORWARD
    if phase not in (*GRADIENTS, "buffer"):
        return None
    if one.mode == "":
        return _FREE_BACKWARD
    return None if one.key.layer_alone in containers else _BACKWARD


def judge_in(one: FloorEvidence, dtype: str, factor: float = _FORWARD) -> Judgement:
    """One entry by what the type explains."""
    floor = _floor(one, dtype)
    assert one.float32 is not None
    value = one.float32.rmse
    check = Check.of("rms", value, factor * floor, floor=floor)
    suspect = one.mode == "" and one.key.phase in GRADIENTS and moved_at_most(one, _KINKS)
    objection = Status.SUSPECT if suspect else Status.PRECISION if one.float64 is not None else Status.FAIL
    times = Number(value / floor if floor else math.inf)
    reason = message("reason.narrow", dtype=dtype, times=times, allowed=Number(factor))
    return judged(one.key, (check,), one.basis, reason=reason, otherwise=objection)


def judge_by_scheme(floor: NoiseFloor, factor: float, containers: Collection[str]) -> Iterator[Judgement]:
    """The entries of a quantised candidate: no farther from the truth than rounding in fitting ranges explains, and
    each layer alone as its own declaration says. `factor` is how many floors of float32 come on top of that.

    In the whole program a last digit takes values to another step of the integers, and so on from layer to layer.
    """
    for one in floor.evidence:
        if one.declared is None or one.emulated is None or one.float32 is None or one.noise is None:
            continue
        # What a layer is given has been rounded by then, or not yet: what it gives tells.
        if one.key.phase not in ("forward", "parameter") or one.key.role.startswith("input"):
            continue
        below = factor * floor.in_own_precision(one)
        alone = one.key.phase == "parameter" or (one.mode == "isolated" and one.key.layer_alone not in containers)
        # By the mean: values beyond a range that was calibrated on other data are cut off, a few at a time.
        for name, error, scheme, allowed, reason, objection in (
            ("declared", one.declared.rmse, one.emulated.rmse, _DECLARED, "reason.scheme.declared", Status.FAIL),
            ("mean", one.float32.mean_abs, one.emulated.mean_abs, _FORWARD, "reason.scheme", Status.PRECISION),
        ):
            if name == "declared" and not alone:
                continue
            check = Check.of(name, error, allowed * scheme + below, floor=scheme)
            times = Number(error / scheme if scheme else math.inf)
            told = message(reason, times=times, allowed=Number(allowed))
            found = judged(one.key, (check,), one.basis, reason=told, otherwise=objection)
            yield found
            if not found.status.passed:
                break


def _floor(one: FloorEvidence, dtype: str) -> float:
    """How far from the truth the type takes the reference, and a part of one rounding more.

    One-dimensional gradients are sums over all samples, which kernels may keep in the narrow type itself.
    """
    assert one.emulated is not None
    measured = one.emulated
    share = (1.0 if measured.count < _FEW else _GUARD) * math.sqrt(max(one.reduction, 1))
    return measured.rmse + share * NARROW[dtype] * measured.reference.rms
