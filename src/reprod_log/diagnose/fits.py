"""Fits: which function, factor, order or rounding turns one tensor into the other. The one library of all hypotheses.

A fit predicts the candidate's tensor. It holds when no element of the prediction is further off than `near`; one with
free numbers also needs more different numbers to explain than these. Families of fits (of relations here, of losses
and of schedules in their files) are generators, the simplest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from reprod_log.diagnose.finding import What, side, what
from reprod_log.messages import Number
from reprod_log.pairing.layouts import arrangement
from reprod_log.recording import Array, dtype_named

_ENOUGH = 8
"""Numbers that a factor, a shift or a function has to explain; fewer agree with one by accident."""
ROUNDINGS = 100
"""What rounding comes to in a deep model, in roundings of its dtype, where no float64 run tells it."""
CLEARLY = 0.01
"""Of the difference that a relation explains: the most that it may leave over."""
MOST_CHANNELS = 4
"""Of images; more are not told apart one by one."""
_NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
    "gelu (tanh approximation)": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu (sigmoid approximation)": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "sigmoid": sigmoid,
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


@dataclass(frozen=True)
class Fit:
    """A prediction of the candidate's tensor, or of some of its elements."""

    what: What
    made: Array
    free: int = 0
    """How many numbers were fitted to make it."""
    at: slice = field(default_factory=lambda: slice(None))
    """Which elements it predicts."""

    def holds(self, theirs: Array, near: float) -> bool:
        wanted = theirs[self.at]
        return holds(self.made, wanted, near) and (not self.free or np.unique(wanted).size > self.free)


def first_that_holds(fits: Iterable[Fit], theirs: Array, near: float) -> What | None:
    """What the first fit says that predicts the candidate's tensor."""
    with np.errstate(all="ignore"):
        return next((fit.what for fit in fits if fit.holds(theirs, near)), None)


def holds(made: Array, theirs: Array, near: float) -> bool:
    """Whether a prediction is right at every element; what is not finite predicts nothing."""
    return bool(np.isfinite(made).all()) and float(np.abs(made - theirs).max(initial=0.0)) <= near


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
    if found is None and functions:
        found = first_that_holds(_functions(ours, "candidate"), theirs, near)
        found = found or first_that_holds(_functions(theirs, "reference"), ours, near)
    return found


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


def rounded(array: Array, dtype: str) -> Array:
    """The numbers of a narrower dtype that are nearest."""
    with np.errstate(over="ignore"):
        return array.astype(dtype_named(dtype)).astype(np.float64)


def _rounded(ours: Array, theirs: Array, near: float) -> What | None:
    """One side holds only numbers of a narrower dtype, and they are the other side's, rounded."""
    for name in _NARROW:
        for narrow, exact, one in ((theirs, ours, "candidate"), (ours, theirs, "reference")):
            step = np.abs(narrow) * epsilon(name)
            if (
                holds(rounded(narrow, name), narrow, near)
                and not holds(rounded(exact, name), exact, near)
                # A number close to the middle between two of the narrow ones may be rounded either way.
                and bool(np.all(np.abs(exact - narrow) <= step / 2 + near))
            ):
                return what("word.rounded_to", side=side(one), dtype=name)
    return None


def slope_of(given: Array, made: Array) -> float:
    """The factor that makes the one out of the other as nearly as a factor can; 0 where nothing was given."""
    size = float(np.vdot(given, given))
    return float(np.vdot(given, made)) / size if size else 0.0


def share_of(old: Array, new: Array, source: Array, near: float) -> float | None:
    """The share of the source in the new value of a moving average; None when it is none."""
    share = slope_of(source - old, new - old)
    fits = 0 < share <= 1 + CLEARLY and holds(old + share * (source - old), new, near)
    return share if fits and old.size > 2 else None


def line(ours: Array, theirs: Array, near: float) -> tuple[float, float] | None:
    """The factor and the shift that make theirs out of ours, the simplest that do: a factor, a shift, or both."""
    slope = slope_of(ours - ours.mean(), theirs - theirs.mean())
    lines = (
        (slope_of(ours, theirs), 0.0),
        (1.0, float((theirs - ours).mean())),
        (slope, float(theirs.mean() - slope * ours.mean())),
    )
    # What is zero but for rounding is not a multiple of anything.
    telling = float(np.abs(theirs).max(initial=0.0)) > near
    return next((one for one in lines if telling and one[0] and holds(one[0] * ours + one[1], theirs, near)), None)


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
        if not 2 <= ours.shape[axis] <= MOST_CHANNELS or ours.size < _ENOUGH * ours.shape[axis]:
            continue
        found = lines_per_channel(ours, theirs, near, axis=axis)
        if found:
            return what("word.line_per_channel", formula=", ".join(map(_formula, found)))
    return None


def by_channel(values: Array, channels: int) -> Array | None:
    """The values of each channel as a row; None when neither the second axis nor the last has as many of them."""
    axes = [axis for axis in (1, values.ndim - 1) if 0 < axis < values.ndim and values.shape[axis] == channels]
    return np.moveaxis(values, axes[0], 0).reshape(channels, -1) if axes else None


def lines_per_channel(ours: Array, theirs: Array, near: float, *, axis: int) -> list[tuple[float, float]]:
    """The line of each channel that makes theirs out of ours; none where one of them has none."""
    channels = zip(np.moveaxis(ours, axis, 0), np.moveaxis(theirs, axis, 0), strict=True)
    fits = [line(one, other, near) if one.size > 2 and np.ptp(one) > 0 else None for one, other in channels]
    found = [fit for fit in fits if fit is not None]
    return found if len(found) == len(fits) else []


def _formula(line: tuple[float, float]) -> str:
    return f"{line[0]:.4g}·x {line[1]:+.4g}"


def _functions(given: Array, one: str) -> Iterator[Fit]:
    """A side that is a known function of the other: a softmax that only one of them has, an activation, a logarithm."""
    for name, made in _applied(given):
        yield Fit(what("word.function_of_the_other", side=side(one), function=name), made)


def _applied(given: Array) -> Iterator[tuple[str, Array]]:
    for name, function in FUNCTIONS.items():
        if name != "identity":
            yield name, function(given)
    yield "square", given**2
    yield "square root", np.sqrt(given)
    yield "log", np.log(given)
    for axis in range(given.ndim):
        if given.shape[axis] > 1:
            shares = softmax(given, axis)
            yield f"softmax (axis {axis})", shares
            yield f"log_softmax (axis {axis})", np.log(shares)


def softmax(given: Array, axis: int = -1) -> Array:
    raised = np.exp(given - given.max(axis, keepdims=True))
    return np.asarray(raised / raised.sum(axis, keepdims=True))
