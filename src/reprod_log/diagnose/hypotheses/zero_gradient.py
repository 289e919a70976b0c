"""Parameters whose true gradient is zero (a bias before batch norm, a key bias): harmless, and said so.

Their gradient is rounding only, so both sides have different numbers there, and Adam turns these into steps of the
learning rate. Said only when such a parameter's entries differ visibly.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.errors import listed
from reprod_log.recording import Key
from reprod_log.verdict import CalibratedPolicy


def look(case: Case) -> Iterable[Finding]:
    if case.floor is None or not isinstance(case.policy, CalibratedPolicy):
        return
    found: dict[str, float] = {}
    for one in case.floor.evidence:
        key = one.key
        if one.mode or key.phase != "gradient" or one.noise is None or one.float32 is None:
            continue
        noise, size = one.noise.rmse, one.noise.reference.rms
        passed = one.key in case.judgements and case.judgements[one.key].status.passed
        if noise > case.policy.noise_only * size and one.float32.rmse > 0 and passed:
            found[key.path] = one.float32.candidate.abs_max
    if found:
        yield Finding(
            rule="zero_gradient",
            kind="remark",
            cause=f"the true gradient of {listed(list(found), most=4)} is zero: what is there is rounding",
            evidence=f"in float64 it vanishes; in float32 it is at most {max(found.values()):.1e}",
            confidence="consistent",
            advice="harmless; under Adam such a parameter moves by the learning rate at random, so its later values "
            "may differ without meaning (bias=False before a batch norm avoids it)",
            keys=tuple(map(Key, found))[:5],
        )
