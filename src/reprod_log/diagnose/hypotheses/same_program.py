"""Two recordings of the same program: the reference compared with itself proves nothing about a port."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding


def look(case: Case) -> Iterable[Finding]:
    left, right = case.reference, case.candidate
    if left.source and left.source == right.source:
        yield _finding("both sides come from the same run", f"both sides are {left.source}")
        return
    ours, theirs = left.provenance, right.provenance
    framework = (ours.framework, ours.framework_version)
    if not ours.framework or framework != (theirs.framework, theirs.framework_version):
        return
    if ours.extra.get("engine") != theirs.extra.get("engine"):
        # An engine is compared with the model it was exported from, which is of the same framework by nature.
        return
    if ours.command and (ours.command, ours.git_commit, ours.time) == (theirs.command, theirs.git_commit, theirs.time):
        said = f"both were recorded by {' '.join(framework)} with the command {ours.command!r}"
        yield _finding("both sides come from the same run", said)
    elif many := _identical(case):
        yield _finding(
            f"{ours.framework} was compared with itself",
            f"both sides were computed by {' '.join(framework)}, and all {many} entries are equal to the last bit",
        )


def _identical(case: Case) -> int:
    """How many floating results there are, if every one of them is bit-identical; inputs do not count."""
    found = [
        row
        for row in case.rows.values()
        if row.reference_dtype.startswith(("float", "bfloat", "complex")) and row.key.phase != "data"
    ]
    same = all(row.measurement is not None and row.measurement.identical for row in found)
    return len(found) if same and not case.comparison.unmatched else 0


def _finding(cause: str, evidence: str) -> Finding:
    return Finding(
        rule="same_program",
        kind="suspicious pass",
        cause=cause,
        evidence=evidence,
        confidence="consistent",
        advice="compare with a recording of the other framework",
    )
