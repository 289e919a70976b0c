"""Dropout that acts on one side only: a model, or a part of it, left in eval or train mode."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.record import Key


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not material.steps:
        return
    for path, (ours, _) in material.layers.items():
        if "dropout" not in ours.kind or case.states.get(path, "own") not in ("own", "glue"):
            continue
        given = material.values(Key(path, "forward", material.steps[0], 0, "input.0"))
        made = material.values(Key(path, "forward", material.steps[0], 0, "output"))
        if given is None or made is None:
            continue
        idle = [np.array_equal(given[side], made[side]) for side in (0, 1)]
        if idle[0] != idle[1]:
            side = "candidate" if idle[1] else "reference"
            yield Finding(
                rule="mode",
                cause=f"dropout {path} does nothing in the {side}: it is in eval mode there, or its rate is 0",
                evidence="its output is its input, while the other side drops values",
                confidence="consistent",
                advice="call train() (or eval()) on both models before comparing, and look for parts switched by hand",
                keys=(path,),
            )
