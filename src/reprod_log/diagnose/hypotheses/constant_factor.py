"""A layer whose output alone is the reference's times or plus a constant: a scale, a temperature, a missing offset."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import other_factor, shown_ratio
from reprod_log.recording import Key


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None:
        return
    for path in case.own:
        both = material.best(Key(path, "forward", 0, 0, "output", "isolated"))
        if both is None or both[0].size < 4:
            continue
        ours, theirs = both
        ratio, shift = other_factor(ours, theirs, within=1e-6), theirs - ours
        if ratio is not None and abs(ratio - 1) > 1e-6:
            count = _deviation_over(ratio, ours.shape)
            said = f"{shown_ratio(ratio)} times the reference's"
            if count is not None:
                said = (
                    f"{shown_ratio(ratio)} times the reference's (a deviation over N = {count} on one side, N - 1 on "
                    "the other?)"
                )
        elif np.ptp(shift) <= 1e-6 * float(np.abs(shift).max()) and np.ptp(ours) > 0:
            said = f"the reference's {float(shift.mean()):+.8g}"
        else:
            continue
        yield Finding(
            rule="constant_factor",
            cause=f"the output of {path} is {said}, in every element",
            evidence="the layer alone on the reference's input, in the highest precision there is",
            confidence="consistent",
            advice=f"look for a factor or an offset in {path}: a scale, a temperature, 1 - p of a dropout",
            keys=(Key(path, "forward", 0, 0, "output", "isolated"),),
        )


def _deviation_over(ratio: float, shape: tuple[int, ...]) -> int | None:
    """The size of an axis whose two deviations, biased and unbiased, have this ratio."""
    for size in shape:
        expected = ((size - 1) / size) ** 0.5 if size > 1 else 0.0
        # Epsilon beside the variance moves the ratio by a little.
        if expected and min(abs(ratio - expected), abs(1 / ratio - expected)) < 1e-4:
            return size
    return None
