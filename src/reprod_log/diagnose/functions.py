"""Elementwise functions by their values: which one turned this tensor into that?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from reprod_log.pairing.values import relative
from reprod_log.recording import Array

_FIT = 1e-5
"""Beyond float32 rounding, well below the difference of any two of these functions on ordinary values."""


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _erf(x: Array) -> Array:
    from math import erf

    return np.asarray(np.vectorize(erf, otypes=[np.float64])(x))


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
