"""Patterns of a policy that fit nothing: a misspelt one must not be ignored without a word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from reprod_log.errors import near_pattern
from reprod_log.measure.comparison import Comparison
from reprod_log.verdict.calibrated_policy import CalibratedPolicy
from reprod_log.verdict.policy import DEFAULT_LIMITS, Policy


@dataclass(frozen=True)
class UnusedPattern:
    """A pattern that fits no entry, the option that it was given to, and what it may have meant."""

    option: str
    pattern: str
    near: tuple[str, ...] = ()


def unused_patterns(comparison: Comparison, policy: Policy | CalibratedPolicy) -> tuple[UnusedPattern, ...]:
    """The patterns that were given and fit nothing in either recording."""
    compared = list(dict.fromkeys(str(row.key) for row in comparison.rows))
    alone = [str(one.key) for one in comparison.unmatched]
    theirs = [str(row.candidate_key) for row in comparison.rows]
    # A key that has its partner after all needs no leave to be alone: such a pattern is spelt right.
    everything = list(dict.fromkeys([*alone, *compared, *theirs]))
    found = [
        *_unused("--accept", policy.accept, [*compared, *alone]),
        *_unused("--allow-unmatched", policy.allow_unmatched, everything),
    ]
    if isinstance(policy, Policy):
        own = [limit for limit in policy.limits if limit not in DEFAULT_LIMITS]
        dtypes = list(
            dict.fromkeys(name for row in comparison.rows for name in (row.reference_dtype, row.candidate_dtype))
        )
        found += _unused("--limit", (limit.keys for limit in own), compared)
        found += _unused("--limit", (limit.dtype for limit in own), dtypes)
    return tuple(dict.fromkeys(found))


def _unused(option: str, patterns: Iterable[str], names: list[str]) -> list[UnusedPattern]:
    return [
        UnusedPattern(option, pattern, tuple(near_pattern(pattern, names)))
        for pattern in patterns
        if pattern != "*" and not any(fnmatchcase(name, pattern) for name in names)
    ]
