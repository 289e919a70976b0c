"""Weights that one side shares (an embedding and the head of a language model) and the other has twice.

Outputs agree as long as both copies do; the gradient of a shared weight is the sum of those of its uses.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.shared_weights import shared_weights
from reprod_log.recording import Key


def look(case: Case) -> Iterable[Finding]:
    for one in shared_weights(case):
        other = "candidate" if one.side == "reference" else "reference"
        yield Finding(
            rule="tied_weights",
            cause=f"the {other} uses {one.shared} in place of {one.separate}, the {one.side} has a weight of its own "
            "there (tied and untied weights)",
            evidence=f"the {other}'s gradient of {one.shared} is the sum of the {one.side}'s of both",
            confidence="consistent",
            advice="share the weight on both sides or on neither: head.weight = embedding.weight in torch, "
            "paddle.matmul(x, embedding.weight, transpose_y=True) in paddle",
            keys=(Key(one.shared, "gradient", case.material.steps[0] if case.material else 0, role="raw"),),
        )
