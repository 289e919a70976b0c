"""A quantised candidate that its precision does not explain: what of its scheme is wrong, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding, told
from reprod_log.messages import Name, Number
from reprod_log.verdict.evidence import FloorEvidence
from reprod_log.verdict.status import Status

_UNUSED = 0.3
"""Least part of what its rounding does that a layer shows which really rounds: 0.54 was the smallest seen."""


def _schemes(case: Case) -> Iterable[Finding]:
    assert case.floor is not None
    rows = case.floor.by_key
    wrong = [
        (judgement.status, rows[judgement.key])
        for judgement in case.verdict.judgements
        if not judgement.status.passed and judgement.key in rows and rows[judgement.key].declared is not None
    ]
    # Weights that are not the reference's explain all that their layer computes.
    weights = {one.key.path.rpartition(".")[0]: one for _, one in wrong if one.key.phase == "parameter"}
    alone = {one.key.path: (status, one) for status, one in wrong if one.mode == "isolated" and one.key.path}
    for layer, one in weights.items():
        keys = (one.key, *(alone[layer][1].key for _ in range(layer in alone)))
        share = Number(_share(one), ".2g")
        yield told("cause.scheme.weights", keys, path=Name(one.key.path), share=share)
    for layer, (status, one) in alone.items():
        if layer in weights or any(other.startswith(f"{layer}.") for other in (*alone, *weights)):
            continue
        assert one.float32 is not None
        assert one.emulated is not None
        id = "cause.scheme.range" if status is Status.PRECISION else "cause.scheme.kernel"
        if one.float32.rmse < _UNUSED * one.emulated.rmse:
            id = "cause.scheme.unused"
        yield told(id, (one.key,), path=Name(layer), share=Number(_share(one), ".2g"))


def _share(one: FloorEvidence) -> float:
    """How far it is from the reference, in percent of its size."""
    assert one.float32 is not None
    return 100 * one.float32.rel_l2


HYPOTHESES = (Hypothesis("scheme", _schemes, Where(data=False, floor=True, failures=True)),)
