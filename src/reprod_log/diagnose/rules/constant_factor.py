"""A layer whose output alone is the reference's times or plus a constant: a scale, a temperature, a missing offset."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import factor
from reprod_log.record import Key


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None:
        return
    for path in case.own:
        both = material.best(Key(path, "forward", 0, 0, "output", "isolated"))
        if both is None or both[0].size < 4:
            continue
        ours, theirs = both
        ratio, shift = factor(ours, theirs, within=1e-6), theirs - ours
        if ratio is not None and abs(ratio - 1) > 1e-6:
            said = f"{ratio:.8g} times the reference's"
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
            keys=(f"isolated@step0/forward/{path}#0:output",),
        )
