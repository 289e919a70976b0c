"""A limit that is large beside the values: it would let a wrong number through."""

from __future__ import annotations

from collections.abc import Iterable
from glob import escape

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.errors import listed
from reprod_log.measure.comparison import Compared
from reprod_log.recording import Key
from reprod_log.verdict import Policy

_SHARE = 0.01
"""A limit of 1 % of the values or more: 1e-6 beside a learning rate of 3e-5 is 3 %."""
_ABSOLUTE = ("mean_abs", "max_abs", "min_abs", "rmse")


def look(case: Case) -> Iterable[Finding]:
    wide: dict[Key, float] = {}
    for key, row in case.rows.items():
        judgement = case.judgements[key]
        measured = row.measurement
        if measured is None or not judgement.status.passed or measured.identical or not measured.reference.rms > 0:
            continue
        for check in judgement.checks:
            absolute = check.metric in _ABSOLUTE and check.floor is None
            if absolute and check.limit >= _SHARE * measured.reference.rms and not _made_for(case, row, check.metric):
                wide[key] = max(wide.get(key, 0.0), check.limit / measured.reference.rms)
    if wide:
        worst = max(wide, key=lambda key: wide[key])
        yield Finding(
            rule="limit_above_values",
            kind="suspicious pass",
            cause=f"the limit is wide for {listed(map(str, wide), most=3)}: their values differ and pass because they "
            "are small",
            evidence=f"for {str(worst)!r} the limit is {wide[worst]:.0%} of the values' size",
            advice="use a relative limit, e.g. --limit rel_l2:1e-5 or max_rel:1e-6",
            keys=tuple(wide),
        )


def _made_for(case: Case, row: Compared, metric: str) -> bool:
    """Whether the limit was worked out for this entry, as the spread of a sample is for its statistics."""
    if not isinstance(case.policy, Policy):
        return False
    limit = case.policy.limits_for(str(row.key), row.reference_dtype).get(metric)
    return limit is not None and limit.keys == escape(str(row.key))
