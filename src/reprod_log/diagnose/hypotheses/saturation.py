"""Softmax far out: paddle's CPU kernels of softmax and cross entropy cut differences of logits off at 64.

A sample whose logit lies 100 below the largest has a loss of 100 in torch and of 64 in paddle. Both are nearly certain
predictions; the gradients differ by exp(-64), the loss visibly.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.layers.lookup import layer_kind


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    sides = {case.reference.provenance.framework, case.candidate.provenance.framework}
    first = case.verdict.first_divergence
    if material is None or first is None or not first.key.phase or len(sides) == 1:
        return
    limits = {_limit("cross_entropy_loss", side) for side in sides}
    if len(limits) == 1:
        return
    limit = max(one for one in limits if one is not None)
    key = first.key
    layer = material.layers.get(key.path)
    at_softmax = layer is not None and any(_limit(layer[0].kind, side) for side in sides)
    if key.phase != "loss" and not at_softmax:
        return
    role = "input.0" if at_softmax else "output"
    for found, (ours, _) in material.each("forward", key.step):
        if found.role != role or ours.ndim < 2 or (at_softmax and found.path != key.path):
            continue
        spread = float((ours.max(-1) - ours.min(-1)).max())
        if spread > limit and (at_softmax or found.path == ""):
            yield Finding(
                rule="saturation",
                cause=f"logits lie {spread:.3g} apart: paddle's softmax and cross entropy stop at {limit:g}",
                evidence=f"the outputs agree; {first.key} is the first that does not",
                confidence="consistent",
                advice="harmless for training; scale the logits down for the comparison, or compute the loss by "
                "log_softmax by hand on the paddle side",
                keys=(first.key,),
            )
            return


def _limit(kind: str, framework: str) -> float | None:
    """Where the framework's kernel of this kind of layer cuts differences of logits off."""
    row = layer_kind(kind)
    column = None if row is None else row.columns.get(framework)
    return None if column is None else column.value_limit
