"""Relations: how one tensor is made from the other, tried one after the other; the simplest that fits is reported.

A relation predicts the candidate's tensor from the reference's. It fits when no element of the prediction is further
off than `near`; a relation with free parameters also needs more numbers than it could fit by accident.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from reprod_log.diagnose.fits import FUNCTIONS, shown_ratio
from reprod_log.messages import Message, Number, message
from reprod_log.pairing.layouts import arrangement
from reprod_log.recording import Array

_ENOUGH = 8
"""Numbers that a factor, a shift or a function has to explain; fewer agree with one by accident."""
_ROUNDINGS = 100
"""What rounding comes to in a deep model, in roundings of its dtype, where no float64 run tells it."""
_CLEARLY = 0.01
"""Of the difference that a relation explains: the most that it may leave over."""
_NARROW: Mapping[str, np.dtype[np.generic]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


@dataclass(frozen=True)
class Relation:
    """How the candidate's tensor follows from the reference's, and what shows it."""

    what: Message
    evidence: Message


def nearness(ours: Array, theirs: Array, dtype: str) -> float:
    """How far off the prediction of a relation may be: rounding, and far less than what it explains."""
    size = float(np.abs(theirs).max(initial=0.0))
    rounding = _ROUNDINGS * epsilon(dtype) * size
    if ours.shape != theirs.shape:
        return rounding
    return min(rounding, _CLEARLY * float(np.abs(theirs - ours).max(initial=0.0)))


def epsilon(dtype: str) -> float:
    """The distance from 1 to the next number of a floating dtype; 0 for exact kinds."""
    kind = np.dtype(_NARROW.get(dtype, dtype)) if dtype.startswith(("float", "bfloat")) else None
    if kind is None:
        return 0.0
    above = np.ones((), kind)
    return float(np.nextafter(above, above + above)) - 1.0


def relation(ours: Array, theirs: Array, *, near: float, functions: bool = True) -> Relation | None:
    """The simplest relation that fits; None when the two are equal, not finite, or related in no known way."""
    if ours.size != theirs.size or not ours.size or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    if ours.shape == theirs.shape and _fits(ours, theirs, near):
        return None
    order = _order(ours, theirs, near)
    varies = ours.size >= _ENOUGH and np.ptp(ours) > 0 and np.ptp(theirs) > 0
    if order is not None or ours.shape != theirs.shape or not varies:
        return order
    found = _rounded(ours, theirs, near) or _line(ours, theirs, near)
    return found or (_function(ours, theirs, near) if functions else None)


def _fits(made: Array, theirs: Array, near: float) -> bool:
    """Whether a prediction is right at every element; what is not finite predicts nothing."""
    return bool(np.isfinite(made).all()) and float(np.abs(made - theirs).max(initial=0.0)) <= near


def _order(ours: Array, theirs: Array, near: float) -> Relation | None:
    if ours.shape != theirs.shape and _fits(ours.ravel(), theirs.ravel(), near):
        shapes = {"ours": str(list(ours.shape)), "theirs": str(list(theirs.shape))}
        return Relation(message("word.other_shape", **shapes), message("evidence.equal_in_that_order"))
    known = arrangement(ours, theirs, near=near)
    if known is not None:
        return Relation(message("word.other_order.known", how=known), message("evidence.equal_in_that_order"))
    # Few numbers, or numbers that are nearly all alike, are equal in some order by accident.
    if (
        ours.size >= _ENOUGH
        and np.unique(ours).size >= _ENOUGH
        and _fits(np.sort(ours, None), np.sort(theirs, None), near)
    ):
        return Relation(message("word.other_order"), message("evidence.equal_when_sorted"))
    return None


def _rounded(ours: Array, theirs: Array, near: float) -> Relation | None:
    """One side holds only numbers of a narrower dtype, and they are the other side's, rounded."""
    for name, dtype in _NARROW.items():
        for rounded, exact, side in ((theirs, ours, "candidate"), (ours, theirs, "reference")):
            kept, made = rounded.astype(dtype).astype(np.float64), exact.astype(dtype).astype(np.float64)
            step = np.abs(rounded) * epsilon(name)
            if (
                np.array_equal(kept, rounded)
                and not np.array_equal(made, exact)
                # A number close to the middle between two of the narrow ones may be rounded either way.
                and bool(np.all(np.abs(exact - rounded) <= step / 2 + near))
            ):
                what = message("word.rounded_to", side=message(f"word.{side}"), dtype=name)
                return Relation(what, message("evidence.within_half_a_step", dtype=name))
    return None


def _line(ours: Array, theirs: Array, near: float) -> Relation | None:
    """theirs = a × ours + b: a factor alone, a shift alone, or both."""
    size = float(np.vdot(ours, ours))
    ratio = float(np.vdot(ours, theirs)) / size if size else 0.0
    if ratio and _fits(ratio * ours, theirs, near):
        return Relation(message("word.times_the_reference", ratio=shown_ratio(ratio)), message("evidence.same_ratio"))
    shift = float((theirs - ours).mean())
    if _fits(ours + shift, theirs, near):
        by = Number(shift, ".6g")
        return Relation(message("word.shifted_by", value=by), message("evidence.same_for_every_element"))
    centred = ours - ours.mean()
    slope = float(np.vdot(centred, theirs - theirs.mean())) / float(np.vdot(centred, centred))
    offset = float(theirs.mean() - slope * ours.mean())
    if slope and _fits(slope * ours + offset, theirs, near):
        formula = f"{slope:.4g}·x {offset:+.4g}"
        return Relation(message("word.line", formula=formula), message("evidence.same_for_every_element"))
    return None


def _function(ours: Array, theirs: Array, near: float) -> Relation | None:
    """One side is a known function of the other: a softmax that only one of them has, an activation, a logarithm."""
    with np.errstate(all="ignore"):
        for given, result, side in ((ours, theirs, "candidate"), (theirs, ours, "reference")):
            for name, made in _applied(given):
                if _fits(made, result, near):
                    what = message("word.function_of_the_other", side=message(f"word.{side}"), function=name)
                    return Relation(what, message("evidence.same_for_every_element"))
    return None


def _applied(given: Array) -> Iterator[tuple[str, Array]]:
    for name, function in FUNCTIONS.items():
        if name != "identity":
            yield name, function(given)
    yield "square", given**2
    yield "square root", np.sqrt(given)
    yield "log", np.log(given)
    for axis in range(given.ndim):
        if given.shape[axis] > 1:
            raised = np.exp(given - given.max(axis, keepdims=True))
            shares = raised / raised.sum(axis, keepdims=True)
            yield f"softmax (axis {axis})", shares
            yield f"log_softmax (axis {axis})", np.log(shares)
