"""A float64 pass of another program is no evidence: its distance to the plain pass would pass for rounding."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.errors import RecordingError
from reprod_log.verdict.evidence import FloorEvidence

_LEAST_SHARE = 0.01
"""Relative error of a first step that rounding to float32 does not reach: outputs are off by 1e-7 to 1e-5 there."""
_COARSE_SHARE = {"float16": 0.06, "bfloat16": 0.3, "float8": 1.0}
"""The same for half precision: some fifty roundings of one operation."""


def check_same_program(evidence: Iterable[FloorEvidence]) -> None:
    """Refuse evidence whose float64 pass had other data, weights or random numbers than the plain one.

    Only the first step is looked at: later ones may drift apart by chance. A single output may be nothing but rounding
    (its true value is zero), therefore it takes half of them.
    """
    from statistics import median  # loads fractions and decimals, which few comparisons need

    first = [one for one in evidence if one.mode == "" and one.in_float64 and one.key.step in (None, 0)]
    data = [one for one in first if one.key.phase == "data" and _is_other(one)]
    if data:
        raise RecordingError(
            f"the float64 pass of the reference was fed other data than its plain pass: {_told(data[0])}"
        )
    outputs = [one for one in first if one.key.phase == "forward" and _is_floating(one)]
    if outputs and median(_share(one) / _bound(one) for one in outputs) > 1:
        worst = max(outputs, key=_share)
        raise RecordingError(
            "the float64 pass of the reference is not the same program as its plain pass: at the first step half of "
            f"the {len(outputs)} outputs differ by far more than rounding, the most {_told(worst)}"
        )


def _told(one: FloorEvidence) -> str:
    assert one.noise is not None
    return (
        f"{one.key} differs in {one.noise.differing} of {one.noise.count} elements (relative error {_share(one):.2g}). "
        "Record both passes with the same script, data, starting weights and random numbers (dropout masks count, too)"
    )


def _is_other(one: FloorEvidence) -> bool:
    assert one.noise is not None
    if _is_floating(one):
        return _share(one) > _bound(one)
    # What a second model is fed may be chosen by the first one's outputs: a tie may then fall the other way.
    return one.noise.differing > _LEAST_SHARE * one.noise.count


def _is_floating(one: FloorEvidence) -> bool:
    assert one.noise is not None
    return one.noise.candidate_dtype.startswith(("float", "bfloat", "complex"))


def _share(one: FloorEvidence) -> float:
    assert one.noise is not None
    return one.noise.rel_l2


def _bound(one: FloorEvidence) -> float:
    assert one.noise is not None
    dtype = one.noise.candidate_dtype
    return next((bound for name, bound in _COARSE_SHARE.items() if dtype.startswith(name)), _LEAST_SHARE)
