"""An activation on the other side of zero: rounding, although the gradients behind it jump.

Signs of the inputs of ReLU-like layers are compared between the two sides in float32; a few that differ, where both
values are near zero, explain a jump of gradients that the float64 passes do not have.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.record import Key

_KINKED = ("relu", "leaky_relu", "prelu", "relu6", "hardtanh", "hardswish", "hardsigmoid")
_NEAR = 1e-4
"""Of the tensor's size: what float32 rounding, grown over a few steps, can move."""


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None:
        return
    for path, (ours, _) in material.layers.items():
        if ours.kind not in _KINKED:
            continue
        for step in material.steps:
            both = material.values(Key(path, "forward", step, 0, "input.0"))
            if both is None:
                continue
            flipped = np.sign(both[0]) * np.sign(both[1]) < 0
            count = int(flipped.sum())
            size = float(np.sqrt(np.mean(both[0] ** 2)))
            if not count or float(np.abs(both[0][flipped]).max()) > _NEAR * size:
                continue
            yield Finding(
                rule="kink",
                kind="remark",
                cause=f"{count} of {flipped.size} activations changed side at step {step}, layer {path}: rounding",
                evidence=f"values of up to {float(np.abs(both[0][flipped]).max()):.1e} have another sign there",
                confidence="consistent",
                advice="nothing to mend: gradients may jump at this step; the float64 passes decide",
                keys=(f"step{step}/forward/{path}#0:input.0",),
            )
            return
