"""A layer whose output is right and whose gradient is wrong: a kernel's or a hand-written backward pass.

With live models the re-run asks finite differences which of the two sides is right.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.layers.settings import setting_differences
from reprod_log.pairing.values import relative


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None:
        return
    for path in case.own:
        failed = [key for key in case.failed if key.run == "isolated" and key.layer_alone == path]
        wrong = sorted((key for key in failed if key.phase == "backward"), key=str)
        if not wrong or any(key.phase in ("forward", "buffer") for key in failed):
            continue
        if path not in material.layers or setting_differences(*material.layers[path]):
            continue
        both = material.best(wrong[0])
        size = f"by {relative(*both):.2g} of its size" if both is not None else "or cannot be compared"
        ours, theirs = material.layers[path]
        yield Finding(
            rule="wrong_backward",
            cause=f"the backward pass of {path} ({ours.type} and {theirs.type}) differs, although its output agrees",
            evidence=f"alone, on the same input and output gradient, the gradient of its input differs {size}",
            confidence="consistent",
            advice=f"check the gradient of {path} by finite differences; a custom backward or the framework's kernel "
            "is at fault, and another formulation of the same layer may avoid it",
            keys=tuple(wrong[:3]),
        )
