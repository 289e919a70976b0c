"""verdict: fixed limits, or what rounding alone does, turn measurements into judgements and a verdict."""

from reprod_log.verdict.calibrated import judge_calibrated, verdict_of
from reprod_log.verdict.calibrated_policy import CalibratedPolicy
from reprod_log.verdict.evidence import FloorEvidence
from reprod_log.verdict.fixed import Check, Judgement, Verdict, judge, require_complete
from reprod_log.verdict.noise_floor import NoiseFloor, calibrate
from reprod_log.verdict.policy import DEFAULT_LIMITS, Limit, Policy
from reprod_log.verdict.status import Basis, Status
from reprod_log.verdict.unused import UnusedPattern, unused_patterns

__all__ = [
    "DEFAULT_LIMITS",
    "Basis",
    "CalibratedPolicy",
    "Check",
    "FloorEvidence",
    "Judgement",
    "Limit",
    "NoiseFloor",
    "Policy",
    "Status",
    "UnusedPattern",
    "Verdict",
    "calibrate",
    "judge",
    "judge_calibrated",
    "require_complete",
    "unused_patterns",
    "verdict_of",
]
