"""Finite differences: which side's gradient is right when a layer's outputs agree and its gradients do not?

The layer is run alone in float64 a little to either side of its input; what its weighted output changes by is what the
gradient along that direction must be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reprod_log.capture.eager import runner_of
from reprod_log.experiments.passes import FLOAT64, Experiments
from reprod_log.experiments.regions import cotangent_of
from reprod_log.frameworks.contract import Call, Evaluated
from reprod_log.frameworks.side import Scope, Side
from reprod_log.recording import Array

_STEP = 1e-5
"""Of the input's size. In float64 truncation (h²) and cancellation (1e-16/h) are then both near 1e-10."""


@dataclass(frozen=True)
class Slope:
    """One side's derivative along a random direction: by its backward pass and by finite differences."""

    backward: float
    differences: float

    @property
    def error(self) -> float:
        size = abs(self.differences)
        return abs(self.backward - self.differences) / size if size else abs(self.backward)


def slopes(runs: Experiments, layer: str) -> tuple[Slope, Slope] | None:
    """The slope of both sides with respect to the layer's first floating input; None when it cannot be had."""
    call = next((call for call in runs.calls if call.path == layer), None)
    partner = runs.partners.get(layer)
    role = None if call is None else _moving(call)
    if call is None or partner is None or role is None or runs.their_calls.get(layer) is not call:
        return None
    direction = np.random.default_rng(0).standard_normal(_given(call, role).shape)
    found = [_slope(side, call, role, path, direction) for side, path in ((runs.ours, layer), (runs.theirs, partner))]
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def _moving(call: Call) -> str | None:
    """The place or the name of the first floating input."""
    places = (str(place) for place, value in enumerate(call.args) if _floating(value))
    names = (name for name, value in call.kwargs.items() if _floating(value))
    return next(places, None) or next(names, None)


def _given(call: Call, role: str) -> Array:
    value: Array = call.args[int(role)] if role.isdecimal() else call.kwargs[role]
    return value


def _slope(side: Side, call: Call, role: str, path: str, direction: Array) -> Slope | None:
    step = _STEP * float(np.abs(_given(call, role)).max() or 1.0)
    here = _run(side, call, path)
    gradient = None if here is None else here.input_gradients.get(f"input.{role}")
    moved = [_total(call, _run(side, _moved(call, role, sign * step * direction), path)) for sign in (1, -1)]
    if gradient is None or moved[0] is None or moved[1] is None:
        return None
    return Slope(float(np.vdot(gradient.astype(np.float64), direction)), (moved[0] - moved[1]) / (2 * step))


def _run(side: Side, call: Call, path: str) -> Evaluated | None:
    scope = Scope(run="finite", dtype=FLOAT64)
    try:
        return runner_of(side.framework).call(side, path, call, scope, cotangent_of(call))
    except Exception:  # a layer may raise anything in float64; then there is nothing to tell
        return None


def _moved(call: Call, role: str, by: Array) -> Call:
    moved = _given(call, role).astype(np.float64) + by
    if role.isdecimal():
        return replace(call, args=tuple(moved if str(place) == role else one for place, one in enumerate(call.args)))
    return replace(call, kwargs={**call.kwargs, role: moved})


def _total(call: Call, found: Evaluated | None) -> float | None:
    floating = {} if found is None else {role: one for role, one in found.outputs.items() if one.dtype.kind == "f"}
    weights = {role: cotangent_of(call)(role, one.shape) for role, one in floating.items()}
    terms = [
        float(np.vdot(weight.astype(floating[role].dtype), floating[role]))
        for role, weight in weights.items()
        if weight is not None
    ]
    return sum(terms) if terms else None


def _floating(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"
