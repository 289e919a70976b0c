"""verdict: fixed limits, or what rounding alone does, turn measurements into judgements and a verdict."""

from reprod_log.verdict.calibrated import judge_calibrated, verdict_of
from reprod_log.verdict.evidence import FloorEvidence
from reprod_log.verdict.fixed import judge
from reprod_log.verdict.floor import NoiseFloor, calibrate
from reprod_log.verdict.judgement import Check, Judgement, Verdict
from reprod_log.verdict.passes import OddPass, odd_passes
from reprod_log.verdict.policy import DEFAULT_LIMITS, CalibratedPolicy, Limit, Policy, UnusedPattern, unused_patterns
from reprod_log.verdict.status import Basis, Status

__all__ = [
    "DEFAULT_LIMITS",
    "Basis",
    "CalibratedPolicy",
    "Check",
    "FloorEvidence",
    "Judgement",
    "Limit",
    "NoiseFloor",
    "OddPass",
    "Policy",
    "Status",
    "UnusedPattern",
    "Verdict",
    "calibrate",
    "judge",
    "judge_calibrated",
    "odd_passes",
    "unused_patterns",
    "verdict_of",
]
