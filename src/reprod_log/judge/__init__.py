"""judge: fixed or calibrated limits turn measurements into a verdict."""

from reprod_log.judge.calibrated import judge_calibrated
from reprod_log.judge.calibrated_policy import CalibratedPolicy
from reprod_log.judge.policy import DEFAULT_LIMITS, Limit, Policy
from reprod_log.judge.status import Status
from reprod_log.judge.unused import UnusedPattern, unused_patterns
from reprod_log.judge.verdict import Check, Judgement, Verdict, judge, whole

__all__ = [
    "DEFAULT_LIMITS",
    "CalibratedPolicy",
    "Check",
    "Judgement",
    "Limit",
    "Policy",
    "Status",
    "UnusedPattern",
    "Verdict",
    "judge",
    "judge_calibrated",
    "unused_patterns",
    "whole",
]
