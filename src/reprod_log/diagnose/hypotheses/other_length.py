"""Recordings of other lengths, or of other passes: what one side never ran has no partner, whatever its name."""

from __future__ import annotations

from collections.abc import Iterable

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Material
from reprod_log.errors import counted
from reprod_log.recording import Recording


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not case.comparison.unmatched:
        return
    yield from _steps(case, material)
    yield from _passes(case, material)


def _steps(case: Case, material: Material) -> Iterable[Finding]:
    counts = len(_steps_of(material.reference)), len(_steps_of(material.candidate))
    complete = case.reference.complete and case.candidate.complete
    if counts[0] == counts[1] or not all(counts) or not complete:
        # What was cut short has a word of its own (`cut_short`).
        return
    longer = "reference" if counts[0] > counts[1] else "candidate"
    there = _steps_of(material.candidate if longer == "reference" else material.reference)
    alone = [
        one.key
        for one in case.comparison.unmatched
        if one.side == longer and not (key := one.key).run and key.phase and key.step not in there
    ]
    if not alone:
        return
    yield Finding(
        rule="other_length",
        cause=f"the reference has {counted(counts[0], 'step')}, the candidate {counts[1]}",
        evidence=f"{counted(len(alone), 'entry has', 'entries have')} no partner because the other side never got to "
        "that step",
        confidence="consistent",
        advice=f"record {max(counts)} steps on both sides, or only the first {min(counts)}",
        keys=tuple(alone[:20]),
    )


def _passes(case: Case, material: Material) -> Iterable[Finding]:
    for name, recording, other in (
        ("reference", material.reference, material.candidate),
        ("candidate", material.candidate, material.reference),
    ):
        runs = recording.runs
        if runs and "" not in runs and "" in other.runs:
            yield Finding(
                rule="other_length",
                cause=f"the {name} was recorded in {runs[0]} only, not as it runs",
                evidence="the other side has the plain pass, which nothing can be compared with",
                confidence="consistent",
                advice=f"record the plain pass of the {name} as well: float64 is held beside it and does not stand for "
                "it",
                keys=tuple(one.key for one in case.comparison.unmatched[:20]),
            )


def _steps_of(recording: Recording) -> frozenset[int]:
    """The steps of the program as it runs, of entries that know their step."""
    return frozenset(
        entry.key.step
        for entry in recording.entries
        if not entry.key.run and entry.key.phase and entry.key.step is not None
    )
