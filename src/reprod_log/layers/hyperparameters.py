"""Hyper-parameters of an optimizer under names that both frameworks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reprod_log.recording import Array

_NAMES = {
    "momentum": "momentum",
    "nesterov": "nesterov",
    "use_nesterov": "nesterov",
    "dampening": "dampening",
    "beta1": "beta1",
    "beta2": "beta2",
    "eps": "eps",
    "epsilon": "eps",
    "rho": "rho",
    "alpha": "rho",
    "centered": "centered",
    "amsgrad": "amsgrad",
    "lr_decay": "lr_decay",
    "initial_accumulator_value": "initial_accumulator_value",
    "maximize": "maximize",
    "momentum_decay": "momentum_decay",
}
"""Rates and decay are not among them: they are compared for each parameter."""

_NEUTRAL = {
    "momentum",
    "nesterov",
    "dampening",
    "centered",
    "amsgrad",
    "lr_decay",
    "initial_accumulator_value",
    "maximize",
}
"""0 or False is the same as not having it."""

_CLIPS = {"ClipGradByGlobalNorm": "global_norm", "ClipGradByNorm": "norm", "ClipGradByValue": "value"}


def hyperparameters(settings: Mapping[str, Any]) -> dict[str, Array]:
    """The numbers of an optimizer's settings by their shared names, neutral ones left out.

    A setting that differs between parameter groups is given as all its values, ascending.
    """
    found: dict[str, set[float]] = {}
    for group in settings.get("groups", ()):
        for name, value in _of_group(group).items():
            found.setdefault(name, set()).add(value)
    return {
        name: np.array(sorted(values) if len(values) > 1 else next(iter(values)), dtype=np.float64)
        for name, values in found.items()
        if not (name in _NEUTRAL and values == {0.0})
    }


def _of_group(group: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in group.items():
        if name == "betas" and isinstance(value, (list, tuple)):
            found |= {f"beta{place}": float(one) for place, one in enumerate(value, start=1)}
        elif name in _NAMES and isinstance(value, (bool, int, float)):
            found[_NAMES[name]] = float(value)
    return found


def built_in_clip(settings: Mapping[str, Any]) -> str:
    """How the optimizer clips by itself, in words ('global_norm 1.0'); '' when it does not."""
    clips = [group.get("grad_clip") for group in settings.get("groups", ())]
    said = []
    for clip in clips:
        if isinstance(clip, Mapping):
            kind = _CLIPS.get(str(clip.get("type")), str(clip.get("type")))
            numbers = [str(value) for name, value in clip.items() if name in ("clip_norm", "max", "min")]
            said.append(" ".join([kind, *numbers]))
    return ", ".join(dict.fromkeys(said))
