"""Two recordings of the same program: the reference compared with itself proves nothing about a port."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding


def look(case: Case) -> Iterable[Finding]:
    reference, candidate = case.reference, case.candidate
    if reference.source and reference.source == candidate.source:
        evidence = f"both sides are {reference.source}"
    elif reference.provenance.command and reference.provenance.framework:
        left, right = reference.provenance, candidate.provenance
        same = (left.framework, left.framework_version, left.command, left.git_commit, left.time) == (
            right.framework,
            right.framework_version,
            right.command,
            right.git_commit,
            right.time,
        )
        if not same:
            return
        evidence = f"both were recorded by {left.framework} {left.framework_version} with the command {left.command!r}"
    else:
        return
    yield Finding(
        rule="same_program",
        kind="suspicious pass",
        cause="both sides come from the same run",
        evidence=evidence,
        confidence="consistent",
        advice="compare with a recording of the other framework",
    )
