"""Less precision in one layer: float64 agrees, float32 does not, by about what bfloat16, TF32 or float16 round."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.verdict import Status

_FORMATS = (
    ("float16 or TF32 (11 bits)", 2.0**-14, 2.0**-10.3),
    ("bfloat16 (8 bits)", 2.0**-10.3, 2.0**-7),
    ("8-bit floating point", 2.0**-7, 2.0**-2),
)
"""Relative error of a tensor (rms) that was rounded once or a few times to the format."""


def look(case: Case) -> Iterable[Finding]:
    if case.floor is None:
        return
    evidence = {one.key: one for one in case.floor.evidence}
    for judgement in case.verdict.judgements:
        if judgement.status is not Status.PRECISION:
            continue
        key = judgement.key
        found = evidence.get(judgement.key)
        if found is None or found.float32 is None or not found.float32.reference.rms:
            continue
        share = found.float32.rmse / found.float32.reference.rms
        name = next((name for name, low, high in _FORMATS if low <= share < high), "less than float32")
        yield Finding(
            rule="precision_cut",
            cause=f"{key.path or 'the model'} is computed with less precision in the candidate: {name}",
            evidence=f"relative error {share:.1e} in its own precision, while the float64 passes agree",
            confidence="consistent",
            advice="look for autocast, TF32 (allow_tf32, NVIDIA_TF32_OVERRIDE=0), casts in this layer, or weights in "
            "half precision",
            keys=(judgement.key,),
        )
        return
