"""Fits: which function, factor, order or rounding turns one tensor into the other. The one library of all hypotheses.

A fit predicts the candidate's tensor from the reference's. It holds when no element of the prediction is further off
than `near`; one with free parameters also needs more numbers than it could fit by accident.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from reprod_log.diagnose.finding import What, side, what
from reprod_log.messages import Number
from reprod_log.pairing.distance import factor
from reprod_log.pairing.layouts import arrangement
from reprod_log.recording import Array, dtype_named

_ENOUGH = 8
"""Numbers that a factor, a shift or a function has to explain; fewer agree with one by accident."""
ROUNDINGS = 100
"""What rounding comes to in a deep model, in roundings of its dtype, where no float64 run tells it."""
CLEARLY = 0.01
"""Of the difference that a relation explains: the most that it may leave over."""
_MOST_CHANNELS = 4
_NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
    "gelu (tanh approximation)": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu (sigmoid approximation)": lambda x: x * _sigmoid(1.702 * x),
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardsigmoid (slope 0.2)": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "relu6": lambda x: np.clip(x, 0, 6),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "softplus": lambda x: np.logaddexp(x, 0),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "leaky_relu (0.01)": lambda x: np.where(x > 0, x, 0.01 * x),
    "leaky_relu (0.1)": lambda x: np.where(x > 0, x, 0.1 * x),
    "leaky_relu (0.2)": lambda x: np.where(x > 0, x, 0.2 * x),
    "exp": np.exp,
    "negation": lambda x: -x,
}


def function_between(given: Array, result: Array, *, near: float) -> str | None:
    """The name of the function that makes `result` out of `given`; None when it is none that we know."""
    if given.shape != result.shape or given.size < _ENOUGH or not np.isfinite(given).all():
        return None
    with np.errstate(all="ignore"):
        return next((name for name, function in FUNCTIONS.items() if holds(function(given), result, near)), None)


def other_factor(ours: Array, theirs: Array, *, within: float = 1e-4) -> float | None:
    """The one number that makes theirs out of ours, when it is another one than 1 by more than what it leaves over."""
    ratio = factor(ours, theirs, within=within)
    if ratio is None:
        return None
    left = float(np.linalg.norm(theirs - ratio * ours))
    return ratio if 10 * left < abs(ratio - 1) * float(np.linalg.norm(ours)) else None


def least(error: Callable[[float], float], values: Array) -> float:
    """Where an error is least: near the best of these rising values, narrowed down to rounding."""
    place = int(np.argmin([error(float(one)) for one in values]))
    low, high = float(values[max(place - 1, 0)]), float(values[min(place + 1, len(values) - 1)])
    for _ in range(80):
        third = (high - low) / 3
        low, high = (low, high - third) if error(low + third) < error(high - third) else (low + third, high)
    return (low + high) / 2


def shown_ratio(ratio: float) -> Number:
    """The ratio with as many digits as it takes to see that it is not 1."""
    apart = abs(ratio - 1)
    digits = 6 if not apart else max(6, 2 - math.floor(math.log10(apart)))
    return Number(ratio, f".{min(digits, 15)}g")


def nearness(ours: Array, theirs: Array, dtype: str) -> float:
    """How far off the prediction of a relation may be: rounding, and far less than what it explains."""
    size = float(np.abs(theirs).max(initial=0.0))
    rounding = ROUNDINGS * epsilon(dtype) * size
    if ours.shape != theirs.shape:
        return rounding
    return min(rounding, CLEARLY * float(np.abs(theirs - ours).max(initial=0.0)))


def epsilon(dtype: str) -> float:
    """The distance from 1 to the next number of a floating dtype; 0 for exact kinds."""
    if not dtype.startswith(("float", "bfloat")):
        return 0.0
    above = np.ones((), dtype_named(dtype))
    return float(np.nextafter(above, above + above)) - 1.0


def relation(ours: Array, theirs: Array, *, near: float, functions: bool = True) -> What | None:
    """The simplest relation that fits; None when the two are equal, not finite, or related in no known way."""
    if ours.size != theirs.size or not ours.size or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    if ours.shape == theirs.shape and holds(ours, theirs, near):
        return None
    order = _order(ours, theirs, near)
    varies = ours.size >= _ENOUGH and np.ptp(ours) > 0 and np.ptp(theirs) > 0
    if order is not None or ours.shape != theirs.shape or not varies:
        return order
    found = _rounded(ours, theirs, near) or scaled(ours, theirs, near) or _line_per_channel(ours, theirs, near)
    return found or (_function(ours, theirs, near) if functions else None)


def holds(made: Array, theirs: Array, near: float) -> bool:
    """Whether a prediction is right at every element; what is not finite predicts nothing."""
    return bool(np.isfinite(made).all()) and float(np.abs(made - theirs).max(initial=0.0)) <= near


def _order(ours: Array, theirs: Array, near: float) -> What | None:
    if ours.shape != theirs.shape and holds(ours.ravel(), theirs.ravel(), near):
        return what("word.other_shape", ours=str(list(ours.shape)), theirs=str(list(theirs.shape)))
    known = arrangement(ours, theirs, near=near)
    if known is not None:
        return what("word.other_order.known", how=known)
    # Few numbers, or numbers that are nearly all alike, are equal in some order by accident.
    if ours.size < _ENOUGH or np.unique(ours).size < _ENOUGH:
        return None
    return what("word.other_order") if holds(np.sort(ours, None), np.sort(theirs, None), near) else None


def _rounded(ours: Array, theirs: Array, near: float) -> What | None:
    """One side holds only numbers of a narrower dtype, and they are the other side's, rounded."""
    for name in _NARROW:
        dtype = dtype_named(name)
        for rounded, exact, one in ((theirs, ours, "candidate"), (ours, theirs, "reference")):
            with np.errstate(over="ignore"):
                kept, made = rounded.astype(dtype).astype(np.float64), exact.astype(dtype).astype(np.float64)
            step = np.abs(rounded) * epsilon(name)
            if (
                np.array_equal(kept, rounded)
                and not np.array_equal(made, exact)
                # A number close to the middle between two of the narrow ones may be rounded either way.
                and bool(np.all(np.abs(exact - rounded) <= step / 2 + near))
            ):
                return what("word.rounded_to", side=side(one), dtype=name)
    return None


def line(ours: Array, theirs: Array, near: float) -> tuple[float, float] | None:
    """The factor and the shift that make theirs out of ours, the simplest that do: a factor, a shift, or both."""
    size = float(np.vdot(ours, ours))
    ratio = float(np.vdot(ours, theirs)) / size if size else 0.0
    centred = ours - ours.mean()
    slope = float(np.vdot(centred, theirs - theirs.mean())) / (float(np.vdot(centred, centred)) or 1.0)
    shift = float((theirs - ours).mean())
    lines = ((ratio, 0.0), (1.0, shift), (slope, float(theirs.mean() - slope * ours.mean())))
    return next((one for one in lines if one[0] and holds(one[0] * ours + one[1], theirs, near)), None)


def scaled(ours: Array, theirs: Array, near: float) -> What | None:
    """A factor, a shift or both that make theirs out of ours."""
    found = line(ours, theirs, near)
    if found is None:
        return None
    slope, offset = found
    if not offset:
        return what("word.times_the_reference", ratio=shown_ratio(slope))
    if slope == 1.0:
        return what("word.shifted_by", value=Number(offset, ".6g"))
    return what("word.line", formula=_formula(found))


def _line_per_channel(ours: Array, theirs: Array, near: float) -> What | None:
    """Another line for each of a few channels, as another mean and deviation of images make."""
    for axis in range(1, ours.ndim):
        # As many numbers have to fit in each channel as in a whole tensor.
        if not 2 <= ours.shape[axis] <= _MOST_CHANNELS or ours.size < _ENOUGH * ours.shape[axis]:
            continue
        channels = zip(np.moveaxis(ours, axis, 0), np.moveaxis(theirs, axis, 0), strict=True)
        fits = [line(one, other, near) if np.ptp(one) > 0 else None for one, other in channels]
        if all(fit is not None for fit in fits):
            return what("word.line_per_channel", formula=", ".join(_formula(fit) for fit in fits if fit))
    return None


def _formula(line: tuple[float, float]) -> str:
    return f"{line[0]:.4g}·x {line[1]:+.4g}"


def _function(ours: Array, theirs: Array, near: float) -> What | None:
    """One side is a known function of the other: a softmax that only one of them has, an activation, a logarithm."""
    with np.errstate(all="ignore"):
        for given, result, one in ((ours, theirs, "candidate"), (theirs, ours, "reference")):
            for name, made in _applied(given):
                if holds(made, result, near):
                    return what("word.function_of_the_other", side=side(one), function=name)
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
