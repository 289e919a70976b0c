"""A fixed limit that failed by little: is it rounding? Says what the calibrated rule says, or how to let it speak.

Fixed limits cannot tell the two apart; projects raise them until a check passes. Where the recordings hold a float64
pass the calibrated rule answers, otherwise the reader learns how to record one.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.verdict import CalibratedPolicy, Status, judge_calibrated

_SMALL = 1e-3
"""Relative differences beyond this are hardly rounding, and nobody needs to be told."""


def look(case: Case) -> Iterable[Finding]:
    if isinstance(case.policy, CalibratedPolicy):
        return
    failed = [one.key for one in case.verdict.judgements if one.status is Status.FAIL]
    sizes = [
        row.measurement.rel_l2
        for key in failed
        # A NaN or infinity is no rounding: such a row gives no size, and the rule stays silent.
        if (row := case.rows.get(key)) is not None
        and row.measurement is not None
        and row.measurement.comparable == row.measurement.count
    ]
    if not failed or len(sizes) < len(failed) or not all(size < _SMALL for size in sizes):
        return
    if case.floor is None:
        yield Finding(
            rule="rounding_or_defect",
            kind="remark",
            cause="a fixed limit cannot tell whether this is rounding or a defect",
            evidence=f"the largest failing difference is {max(sizes):.1e} of its values",
            advice="record a float64 pass of both sides (reprod run SCRIPT -o REC --dtype float64, or align_models)",
            keys=tuple(failed),
        )
        return
    calibrated = CalibratedPolicy(
        allow_unmatched=case.policy.allow_unmatched, accept=case.policy.accept, equal_nan=case.policy.equal_nan
    )
    verdict = judge_calibrated(case.comparison, case.floor, calibrated)
    word = "rounding" if verdict.passed else "a defect"
    first = verdict.first_divergence
    yield Finding(
        rule="rounding_or_defect",
        kind="remark",
        cause=f"by the calibrated rule the failures of the fixed limits are {word}",
        evidence=f"{case.floor.basis}; " + (f"first: {first.key}: {first.reason}" if first else "every entry passes"),
        confidence="consistent",
        advice="compare without --limit to see that verdict in full",
        keys=tuple(failed),
    )
