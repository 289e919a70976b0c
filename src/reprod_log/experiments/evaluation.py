"""Evaluation: does a side compute something else without gradients, in evaluation mode, and the other side not?

Training shows a program with gradients only. Dropout and batch norm change both sides alike, so it is enough to know
how far each side moves; only where one moves otherwise are the results of that run compared, as one more call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reprod_log.capture.eager import EAGER, is_compiled, runner_of
from reprod_log.errors import ValuesNotRecorded
from reprod_log.frameworks.side import Batch, Scope, Side
from reprod_log.recording import Entry, Recording

_ROUNDED = 1e-4
"""How far rounding moves the results of float32, relative to their size."""
_ALIKE = 1e-2
"""Share of its own way by which the other side's may differ."""


def evaluated(sides: Sequence[Side], batch: Batch, mains: Sequence[Recording]) -> tuple[tuple[Entry, ...], ...]:
    """For each side its results in evaluation mode, in both precisions, where one moves otherwise; else nothing."""
    found = [_results(_run(side, batch, Scope(phases=("forward",), evaluation=True))) for side in sides]
    moved = [_moved(_results(main), now) for main, now in zip(mains, found, strict=True)]
    if None in found or _are_alike(*moved):
        return (), ()
    wide = Scope(run="float64", dtype="float64", phases=("forward",), evaluation=True)
    return tuple(
        _as_further_call([*(now or ()), *(_results(_run(side, batch, wide)) or ())], main)
        for side, now, main in zip(sides, found, mains, strict=True)
    )


def _run(side: Side, batch: Batch, scope: Scope) -> Recording | None:
    """None where the model cannot be run by itself, or would not be run as it is: evaluation runs uncompiled."""
    if runner_of(side.framework) is not EAGER or is_compiled(side):
        return None
    alone: Any = replace(side, loss=None, step=None, optimizer=None)
    try:
        return EAGER.run(alone, [batch], scope)
    except Exception:  # a model may need what its own loop gives it, and raise anything without
        return None


def _results(recording: Recording | None) -> list[Entry] | None:
    """What the model itself returned at its first call."""
    if recording is None:
        return None
    return [
        entry
        for entry in recording.entries
        if (key := entry.key).phase == "forward"
        and not key.path
        and key.role.startswith("output")
        and key.call == 0
        and key.step in (None, 0)
    ]


def _moved(before: Sequence[Entry] | None, now: Sequence[Entry] | None) -> float:
    """How far the results have moved, relative to their size; infinitely where they are other ones."""
    old = {entry.key.role: entry for entry in before or () if not entry.key.run}
    if not old or old.keys() != {entry.key.role for entry in now or ()}:
        return math.inf
    way = size = 0.0
    try:
        for entry in now or ():
            ours, theirs = old[entry.key.role].array(), entry.array()
            if ours.shape != theirs.shape or ours.dtype.kind != "f":
                return math.inf
            way += float(np.sum((theirs.astype("f8") - ours) ** 2))
            size += float(np.sum(ours.astype("f8") ** 2))
    except ValuesNotRecorded:
        return math.inf
    return math.sqrt(way / size) if size else math.inf


def _are_alike(ours: float, theirs: float) -> bool:
    return ours == theirs or abs(ours - theirs) <= _ROUNDED + _ALIKE * max(ours, theirs)


def _as_further_call(entries: Sequence[Entry], main: Recording) -> tuple[Entry, ...]:
    number = 1 + max(entry.key.call or 0 for entry in main.entries if not entry.key.path)
    return tuple(replace(entry, key=replace(entry.key, call=number, step=0)) for entry in entries)
