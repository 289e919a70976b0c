"""A loss that hardly moves while the model trains: it would look the same for a wrong update."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding

_STEPS = 3
_MOVES = 1e-3
"""Relative movement over the run below which a loss says nothing about the updates."""


def look(case: Case) -> Iterable[Finding]:
    rows = case.rows
    if any(key.phase in ("update", "gradient") for key in rows):
        # Updates were compared themselves, so nothing hangs on the loss.
        return
    for name, points in case.series.items():
        if "loss" not in name.lower() or len(points) < _STEPS or any(p.measurement.count != 1 for p in points):
            continue
        values = [point.measurement.reference.mean for point in points]
        size = max(abs(value) for value in values)
        moved = (max(values) - min(values)) / size if size else 0.0
        if moved < _MOVES and all(point.judgement.status.passed for point in points):
            yield Finding(
                rule="flat_loss",
                kind="suspicious pass",
                cause=f"{name} hardly moves: it cannot show whether gradients and updates are right",
                evidence=f"it changes by {moved:.1e} of its value over {len(points)} steps",
                advice="compare gradients and updates as well, or raise the learning rate for the check",
                keys=tuple(point.row.key for point in points),
            )
