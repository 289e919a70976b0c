"""Overview: the steps of a plan or of a hand-in, and what came of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from reprod_log.alignment import Alignment
from reprod_log.messages import Message
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

    kind: Literal["plan", "hand_in"]
    title: str
    folder: Path
    steps: tuple[StepResult, ...]

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
