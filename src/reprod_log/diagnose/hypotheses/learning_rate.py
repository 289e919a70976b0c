"""Learning rates that differ: never stepped, off by one, another base, and which parameter makes the curves meet."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case, Point
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.schedules import explain


def look(case: Case) -> Iterable[Finding]:
    for name, points in case.series.items():
        if not _is_rate(name, points) or not any(point.row.key in case.failed for point in points):
            continue
        one = points[0].measurement
        if len(points) == 1 and one.count > 2 and case.material is not None:
            both = case.material.values(points[0].row.key)
            if both is None:
                continue
            ours, theirs = both[0].reshape(-1), both[1].reshape(-1)
            steps = np.arange(ours.size)
        else:
            ours = np.array([point.measurement.reference.mean for point in points])
            theirs = np.array([point.measurement.candidate.mean for point in points])
            steps = np.array([point.step for point in points])
        far = np.flatnonzero(np.abs(ours - theirs) > 1e-9 * np.abs(ours).max())
        if not far.size:
            # Not finite, or beyond a limit by less than any schedule would explain.
            continue
        said, bad = explain(steps, ours, theirs), int(far[0])
        yield Finding(
            rule="learning_rate",
            cause=f"the learning rate {name} differs: {said.cause}",
            evidence=f"first at step {steps[bad]}: {ours[bad]:.9g} in the reference, {theirs[bad]:.9g} in the candidate"
            + (f"; {said.evidence}" if said.evidence else ""),
            confidence="consistent" if said.found else "possible",
            advice=said.advice,
            keys=tuple(point.row.key for point in points if point.row.key in case.failed)[:5],
        )


def _is_rate(name: str, points: tuple[Point, ...]) -> bool:
    words = name.lower().replace("/", "_").replace(".", "_").split("_")
    return "lr" in words or "learning" in words
