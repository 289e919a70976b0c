"""A recording that was cut short, or lost a part: entries without a partner are then no difference of the models."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.errors import counted, listed


def look(case: Case) -> Iterable[Finding]:
    for name, side, other in (
        ("reference", case.reference, "candidate"),
        ("candidate", case.candidate, "reference"),
    ):
        missing = [one.key for one in case.comparison.unmatched if one.side == other]
        if side.complete or not missing:
            continue
        yield Finding(
            rule="cut_short",
            cause=f"the recording of the {name} is incomplete: {listed(side.notes[-2:]) or 'it has no end'}",
            evidence=f"{counted(len(missing), 'entry has', 'entries have')} no partner there: "
            f"{listed(map(str, missing))}",
            # That it is incomplete is certain; that all of what is missing is missing for this reason is not.
            confidence="consistent",
            advice=f"record the {name} again to its end before looking for mistakes in the model",
            keys=tuple(missing[:20]),
        )
