"""Where NaN or infinity comes from: the first entry that has one although what went in was finite."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.recording import Key


def look(case: Case) -> Iterable[Finding]:
    before: Key | None = None
    for row in case.comparison.rows:
        key, measured = row.key, row.measurement
        if key.run or measured is None:
            continue
        sides = {
            name: (side.nan, side.inf)
            for name, side in (("reference", measured.reference), ("candidate", measured.candidate))
            if side.nan or side.inf
        }
        if not sides:
            before = row.key
            continue
        if (
            set(sides) == {"reference", "candidate"}
            and not measured.nonfinite_mismatched
            and row.key not in case.failed
        ):
            # Infinite masks are meant so, on both sides alike.
            continue
        shown = ", ".join(f"{name}: {nan} NaN, {inf} infinite" for name, (nan, inf) in sides.items())
        yield Finding(
            rule="not_finite",
            cause=f"NaN or infinity first appears in {row.key} ({' and '.join(sides)})",
            evidence=f"{shown} of {measured.count}; everything before, up to {before or 'the start'}, is finite",
            confidence="consistent",
            advice="look at where the inputs come from: the data themselves hold it, before either model"
            if key.phase == "data"
            else "look for a logarithm or root of zero, a division by zero, or exp of a large number before it; "
            "paddle's detect: FLAGS_check_nan_inf=1, torch's: torch.autograd.set_detect_anomaly(True)",
            keys=(row.key,),
        )
        return
