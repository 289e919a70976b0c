"""Optimizer settings in words that the frameworks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES = {"momentum": "sgd", "sgd": "sgd", "rmsprop": "rmsprop"}
_WORDS = {
    "use_nesterov": "nesterov",
    "regularization_coeff": "weight_decay",
    "coeff": "weight_decay",
    "epsilon": "eps",
    "rho": "alpha",
    "multi_precision": "",
}
_COMPARED = (
    "momentum",
    "dampening",
    "nesterov",
    "weight_decay",
    "beta1",
    "beta2",
    "eps",
    "amsgrad",
    "alpha",
    "centered",
    "maximize",
    "initial_accumulator_value",
    "l1_decay",
)
_ABSENT: Mapping[str, Any] = {
    "momentum": 0.0,
    "dampening": 0.0,
    "nesterov": False,
    "weight_decay": 0.0,
    "amsgrad": False,
    "maximize": False,
    "initial_accumulator_value": 0.0,
    "l1_decay": 0.0,
}


def optimizer_kind(settings: Mapping[str, Any]) -> str:
    name = str(settings.get("type", "")).lower()
    return _TYPES.get(name, name)


def group_settings(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each group's settings under shared names; what a group does not say has its meaning of absence."""
    found = []
    for group in settings.get("groups", []):
        shared = dict(_ABSENT)
        for name, value in group.items():
            word = _WORDS.get(name, name)
            if word == "betas" and isinstance(value, list) and len(value) == 2:
                shared["beta1"], shared["beta2"] = value
            elif word in _COMPARED and isinstance(value, (int, float)):
                shared[word] = value
        for name in ("weight_decay", "regularization"):
            # An object such as paddle's L2Decay, described by its class and numbers.
            decay = group.get(name)
            if isinstance(decay, Mapping):
                coefficients = [decay[key] for key in ("coeff", "regularization_coeff") if key in decay]
                kind = "l1_decay" if str(decay.get("type", "")).startswith("L1") else "weight_decay"
                shared[kind] = coefficients[0] if coefficients else shared[kind]
        found.append({name: value for name, value in shared.items() if name in _COMPARED})
    return found
