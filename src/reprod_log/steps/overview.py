"""Overview: the steps of a plan or of a hand-in, and what came of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from reprod_log.alignment import Alignment
from reprod_log.messages import Message, message
from reprod_log.steps.subject import Subject
from reprod_log.verdict import Status


@dataclass(frozen=True)
class StepResult:
    """What came of one pair of recordings, or why nothing could."""

    name: str
    subject: Subject | None
    reference: Path | None
    candidate: Path | None
    alignment: Alignment | None = None
    problem: Message | None = None
    """Why nothing could be compared."""
    published: str = ""
    """The verdict of the committed diff log: 'passed', 'failed' or ''."""
    skipped: bool = False
    """An earlier step failed and the plan was to stop there."""

    @property
    def passed(self) -> bool:
        return self.alignment is not None and self.alignment.passed and self.problem is None

    def allowing_unproven(self) -> StepResult:
        """The same, where a pass that proves nothing passes."""
        if self.alignment is None:
            return self
        return replace(self, alignment=self.alignment.judged_by(replace(self.alignment.policy, allow_unproven=True)))

    @property
    def status(self) -> Status:
        """The alignment's, or NOTHING when there is none."""
        return Status.NOTHING if self.alignment is None else self.alignment.status


@dataclass(frozen=True)
class Overview:
    """Several steps under one title, in the order in which they were done."""

    kind: Literal["plan", "hand_in", "site"]
    title: str
    folder: Path
    steps: tuple[StepResult, ...]
    absent: tuple[str, ...] = ()
    """Steps of which a hand-in should have logs and has none."""
    unused: tuple[str, ...] = ()
    """Files that were seen and not compared."""

    @property
    def passed(self) -> bool:
        return bool(self.steps) and all(step.passed for step in self.steps)

    @property
    def status(self) -> Status:
        """One word for all steps: UNPROVEN when nothing but that keeps them from passing."""
        if self.passed:
            return Status.PASS
        left = [step for step in self.steps if not step.passed and not step.skipped]
        unproven = all(step.status is Status.UNPROVEN and step.problem is None for step in left)
        return Status.UNPROVEN if left and unproven else Status.FAIL

    def to_dict(self) -> dict[str, Any]:
        """The table as plain values; the alignments lie beside it."""
        return {
            "title": self.title,
            "passed": self.passed,
            "status": str(self.status),
            "steps": [
                {
                    "name": step.name,
                    "subject": "" if step.subject is None else step.subject.name,
                    "status": "SKIPPED" if step.skipped else str(step.status),
                    "passed": step.passed,
                    "problem": "" if step.problem is None else str(step.problem),
                    "alignment": "" if step.alignment is None else f"{step.name}/alignment.json",
                }
                for step in self.steps
            ],
        }


def without_posing(steps: Iterable[StepResult]) -> list[StepResult]:
    """The steps; one whose two sides are one framework, bit for bit, is doubted where the others are of two."""
    found = list(steps)
    pairs = {_frameworks(step.alignment) for step in found if step.alignment is not None}
    two = next((pair for pair in sorted(pairs) if pair[0] != pair[1] and all(pair)), None)
    return found if two is None else [_doubted(step, two) for step in found]


def _frameworks(alignment: Alignment) -> tuple[str, str]:
    return alignment.reference.provenance.framework, alignment.candidate.provenance.framework


def _doubted(step: StepResult, two: tuple[str, str]) -> StepResult:
    if step.alignment is None:
        return step
    equal = [one for one in step.alignment.findings if one.rule == "same_program" and one.kind == "remark"]
    if not equal:
        return step
    cause = message("cause.same_program.plan", framework=_frameworks(step.alignment)[0], ours=two[0], theirs=two[1])
    findings = tuple(
        replace(one, kind="doubt", cause=cause) if one in equal else one for one in step.alignment.findings
    )
    return replace(step, alignment=replace(step.alignment, findings=findings))
