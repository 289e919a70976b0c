"""A learning rate that never changes: a scheduler that was not stepped passes any comparison.

Only where learning rates are all that was compared: a few training steps at a constant rate are nothing to speak of.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case, Point
from reprod_log.diagnose.finding import Finding

_STEPS = 5
"""A warm-up or decay shows within this many entries, or the check is too short to show it."""


def look(case: Case) -> Iterable[Finding]:
    if not all(map(_is_rate, case.series)):
        return
    for name, points in case.series.items():
        if len(points) >= _STEPS and all(point.measurement.count == 1 for point in points):
            sides = [{getattr(p.measurement, side).mean for p in points} for side in ("reference", "candidate")]
            if all(len(values) == 1 for values in sides):
                yield _finding(name, f"{len(points)} entries", points)
        elif len(points) == 1 and points[0].measurement.count >= _STEPS:
            measured = points[0].measurement
            if measured.reference.min == measured.reference.max and measured.candidate.min == measured.candidate.max:
                yield _finding(name, f"{measured.count} values", points)


def _is_rate(name: str) -> bool:
    words = name.lower().replace("/", "_").replace(".", "_").split("_")
    return "lr" in words or "learning" in words


def _finding(name: str, many: str, points: tuple[Point, ...]) -> Finding:
    value = np.format_float_scientific(points[0].measurement.reference.mean, trim="-")
    return Finding(
        rule="constant_sequence",
        kind="suspicious pass",
        cause=f"the learning rate {name} never changes",
        evidence=f"all {many} are {value} on both sides",
        advice="step both schedulers between the readings, far enough for the schedule to show",
        keys=tuple(point.row.key for point in points),
    )
