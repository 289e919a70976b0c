"""hypotheses: what is often the cause, a table of where to look for it and how.

A hypothesis has a comment that says what it looks for and why, a function `look(case)` that yields findings, and a row
in the table of its file. It reads numbers; on a healthy pair it finds nothing. Only a doubt changes a verdict: it makes
a pass NOT PROVEN.
"""

from __future__ import annotations

from collections.abc import Iterator

from reprod_log.diagnose import losses, schedules
from reprod_log.diagnose.case import Case
from reprod_log.diagnose.engine import Hypothesis, Where
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.hypotheses import doubts, graph, logs, schemes, settings, updates, weights


def _ranks(case: Case) -> Iterator[Finding]:
    # Few recordings are of several ranks; the others need not wait for what explains them.
    from reprod_log.diagnose.hypotheses.ranks import look

    return look(case)


HYPOTHESES: tuple[Hypothesis, ...] = (
    *doubts.HYPOTHESES,
    *graph.HYPOTHESES,
    *logs.HYPOTHESES,
    *schemes.HYPOTHESES,
    *settings.HYPOTHESES,
    *updates.HYPOTHESES,
    *weights.HYPOTHESES,
    *losses.HYPOTHESES,
    *schedules.HYPOTHESES,
    Hypothesis("ranks", _ranks, Where(joined=True)),
)
