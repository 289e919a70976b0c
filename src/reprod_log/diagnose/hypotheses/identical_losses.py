"""Losses that are bit-identical over several training steps.

Two frameworks almost never round a loss alike step after step; ten exact zeros in a row usually mean that one side was
compared with itself. Exact zeros are normal for data, learning rates and metrics, so only losses are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding

_STEPS = 3
"""Fewer equal losses than this happen by chance (1 ulp of a loss is a coarse step)."""


def look(case: Case) -> Iterable[Finding]:
    frameworks = {side.provenance.framework for side in (case.reference, case.candidate)}
    if "" not in frameworks:
        # Who computed them is known. The same framework twice is what same_program speaks about; small losses of two
        # frameworks may well round alike.
        return
    for name, points in case.series.items():
        floating = all(point.row.reference_dtype.startswith("float") for point in points)
        if "loss" not in name.lower() or len(points) < _STEPS or not floating:
            continue
        values = {point.measurement.reference.mean for point in points}
        if len(values) > 1 and all(point.measurement.identical for point in points):
            yield Finding(
                rule="identical_losses",
                kind="suspicious pass",
                cause=f"{name} is bit-identical on both sides at all {len(points)} steps",
                evidence="two frameworks hardly ever round every loss alike; were both sides computed by the same one?",
                advice="make sure that each side's losses come from its own framework",
                keys=tuple(point.row.key for point in points),
            )
