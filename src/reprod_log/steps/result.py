"""StepResult: what came of one step, from a hand-in's files or from a plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reprod_log.alignment import Alignment
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
    problem: str = ""
    published: str = ""
    """What the committed diff log says: 'passed', 'failed' or ''."""
    skipped: bool = False
    """An earlier step failed and the plan was to stop there."""

    @property
    def passed(self) -> bool:
        return self.alignment is not None and self.alignment.passed and not self.problem

    @property
    def status(self) -> Status:
        """The alignment's, or NOTHING when there is none."""
        return Status.NOTHING if self.alignment is None else self.alignment.status
