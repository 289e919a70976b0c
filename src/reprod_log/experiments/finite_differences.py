"""Finite differences: which side's gradient is right when a layer's outputs agree and its gradients do not?

The layer is run alone in float64 a little to either side of its input; what its weighted output changes by is what the
gradient along that direction must be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reprod_log.experiments.isolation import Call, cotangent, run_isolated
from reprod_log.experiments.passes import FLOAT64, Runs
from reprod_log.experiments.program import Program
from reprod_log.recording import Array, Entry

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


def slopes(runs: Runs, layer: str) -> tuple[Slope, Slope] | None:
    """The slope of both sides with respect to the layer's first floating input; None when it cannot be had."""
    call = next((call for call in runs.calls if call.path == layer), None)
    partner = runs.partners.get(layer)
    role = None if call is None else _moving(call)
    if call is None or partner is None or role is None or runs.their_calls.get(layer) is not call:
        return None
    direction = np.random.default_rng(0).standard_normal(_given(call, role).shape)
    found = [
        _slope(program, call, role, path, direction) for program, path in ((runs.ours, layer), (runs.theirs, partner))
    ]
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def _moving(call: Call) -> str | None:
    """The place or the name of the first floating input."""
    places = (str(place) for place, value in enumerate(call.args) if _floating(value))
    names = (name for name, value in call.kwargs.items() if _floating(value))
    return next(places, None) or next(names, None)


def _given(call: Call, role: str) -> Array:
    value: Array = call.args[int(role)] if role.isdecimal() else call.kwargs[role]
    return value


def _slope(program: Program, call: Call, role: str, path: str, direction: Array) -> Slope | None:
    step = _STEP * float(np.abs(_given(call, role)).max() or 1.0)
    here = _run(program, call, path)
    gradient = next((e.array() for e in here if e.key.phase == "backward" and e.key.role == f"input.{role}"), None)
    sides = [_total(call, _run(program, _moved(call, role, sign * step * direction), path)) for sign in (1, -1)]
    if gradient is None or sides[0] is None or sides[1] is None:
        return None
    return Slope(float(np.vdot(gradient.astype(np.float64), direction)), (sides[0] - sides[1]) / (2 * step))


def _run(program: Program, call: Call, path: str) -> tuple[Entry, ...]:
    entries, _ = run_isolated(program, [call], run="finite", dtype=FLOAT64, paths={call.path: path})
    return entries


def _moved(call: Call, role: str, by: Array) -> Call:
    moved = _given(call, role).astype(np.float64) + by
    if role.isdecimal():
        return replace(call, args=tuple(moved if str(place) == role else one for place, one in enumerate(call.args)))
    return replace(call, kwargs={**call.kwargs, role: moved})


def _total(call: Call, entries: tuple[Entry, ...]) -> float | None:
    outputs: Mapping[str, Array] = {e.key.role: e.array() for e in entries if e.key.phase == "forward"}
    floating = {role: one for role, one in outputs.items() if one.dtype.kind == "f"}
    if not floating:
        return None
    return sum(
        float(np.vdot(cotangent(call, role, one.shape).astype(one.dtype), one)) for role, one in floating.items()
    )


def _floating(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"
