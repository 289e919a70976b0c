"""A parameter that only one side has: a bias that was left out, an affine layer that has more than its partner."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.shared_weights import shared_weights


def look(case: Case) -> Iterable[Finding]:
    if case.material is None:
        return
    first = case.material.steps[0] if case.material.steps else 0
    shared = {one.separate for one in shared_weights(case)}
    theirs = {there.path: path for path, (_, there) in case.material.layers.items()}
    for one in case.comparison.unmatched:
        key = one.key
        if key.phase != "parameter" or key.run or key.step != first or key.path in shared:
            continue
        layer, _, name = key.path.rpartition(".")
        paired = layer in case.material.layers if one.side == "reference" else layer in theirs
        if not paired:
            continue
        other = "candidate" if one.side == "reference" else "reference"
        yield Finding(
            rule="missing_parameter",
            cause=f"{layer} has {name} in the {one.side} only: the {other}'s layer has none",
            evidence=f"{key.path} has no partner, although its layer has",
            confidence="consistent",
            advice=f"give both layers a {name}, or neither (bias=False in torch, bias_attr=False in paddle)",
            keys=(one.key,),
        )
