"""Fits: which function, factor or update turns one tensor into the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.messages import Number
from reprod_log.pairing.values import factor, relative
from reprod_log.recording import Array, Key

_FIT = 1e-5
"""Beyond float32 rounding, well below the difference of any two of these functions on ordinary values."""


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


def function_between(given: Array, result: Array) -> str | None:
    """The name of the function that makes `result` out of `given`; None when it is none that we know."""
    if given.shape != result.shape or given.size < 4 or not (np.isfinite(given).all() and np.isfinite(result).all()):
        return None
    with np.errstate(all="ignore"):
        for name, function in FUNCTIONS.items():
            made = function(given)
            if np.isfinite(made).all() and relative(made, result) < _FIT:
                return name
    return None


_OF_OPTIMIZERS = ("update", "optimizer", "parameter")


def other_factor(ours: Array, theirs: Array, *, within: float = 1e-4) -> float | None:
    """The one number that makes theirs out of ours, when it is another one than 1 by more than what it leaves over."""
    ratio = factor(ours, theirs, within=within)
    if ratio is None:
        return None
    left = float(np.linalg.norm(theirs - ratio * ours))
    return ratio if 10 * left < abs(ratio - 1) * float(np.linalg.norm(ours)) else None


def shown_ratio(ratio: float) -> Number:
    """The ratio with as many digits as it takes to see that it is not 1."""
    apart = abs(ratio - 1)
    digits = 6 if not apart else max(6, 2 - math.floor(math.log10(apart)))
    return Number(ratio, f".{min(digits, 15)}g")


@dataclass(frozen=True)
class BadUpdates:
    """The first step at which the optimizers do different things with the same gradients."""

    step: int
    paths: tuple[str, ...]
    """Parameters whose update differs, or is there on one side only."""
    agreeing: tuple[str, ...]
    """Parameters whose update agrees at that step."""
    keys: tuple[Key, ...]


def first_bad_update(case: Case) -> BadUpdates | None:
    """None when updates agree, or when gradients or learning rates are already wrong at that step."""
    data = case.recorded
    if data is None:
        return None
    # A layer that one side writes as a function has no partner and says nothing about the optimizers; a gradient that
    # is lost does.
    paired = {*data.parameters, *map(data.partner, data.parameters)}
    alone = {
        key
        for key in (one.key for one in case.comparison.unmatched)
        if key.phase in _OF_OPTIMIZERS or (key.phase == "gradient" and key.path in paired)
    }
    wrong = {*case.failed, *alone}
    wrong = {key for key in wrong if not key.run}
    for step in data.steps:
        here = {key for key in wrong if key.step == step}
        if any(key.phase in ("data", "forward", "loss", "backward", "gradient", "lr") for key in here):
            return None
        # In an order of its own: sets have another one in every process.
        bad = {
            key.path: key
            for key in sorted(here, key=lambda one: (data.place(one.path), str(one)))
            if key.phase in _OF_OPTIMIZERS
        }
        if bad:
            updated = {
                pair.reference.key.path
                for pair in data.pairing.pairs
                if pair.reference.key.phase == "update"
                and not pair.reference.key.run
                and pair.reference.key.step == step
            }
            agreeing = tuple(path for path in data.parameters if path in updated and path not in bad)
            return BadUpdates(step, tuple(bad), agreeing, tuple(bad.values())[:5])
    return None
