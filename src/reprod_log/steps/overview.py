"""Overview: the steps of a plan or of a hand-in as one table, each with its answer in a line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from reprod_log.messages import Foreign, Message, Name, message, words
from reprod_log.steps.hand_in import HandIn
from reprod_log.steps.result import StepResult
from reprod_log.steps.run_plan import PlanResult
from reprod_log.verdict import Status


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    word: str
    """The status, or SKIPPED, or ERROR when the step could not be done."""
    first: str
    """Key of the first divergence, '' when there is none."""
    said: Message | Foreign
    """The surest cause or note, else why it did not pass, else how much passed."""
    doubtful: bool = False
    """It passes, and a rule says that this proves nothing."""

    @property
    def finding(self) -> str:
        """What it says, in English."""
        return words()(self.said)

    @property
    def status(self) -> Status:
        """The status whose colour the line has."""
        if self.doubtful:
            return Status.SUSPECT
        return Status(self.word) if self.word in Status.__members__ else Status.NOTHING


@dataclass(frozen=True)
class Overview:
    """Several steps under one title."""

    kind: Literal["plan", "hand_in"]
    title: str
    folder: Path
    steps: tuple[StepResult, ...]

    @classmethod
    def of(cls, result: PlanResult | HandIn) -> Overview:
        """The overview of a plan's results, or of a hand-in's."""
        if isinstance(result, HandIn):
            return cls("hand_in", str(result.folder), result.folder, result.steps)
        return cls("plan", result.title, result.folder, result.steps)

    @property
    def passed(self) -> bool:
        return bool(self.steps) and all(step.passed for step in self.steps)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The table."""
        return tuple(_row(step) for step in self.steps)

    @cached_property
    def summary(self) -> Message:
        """The answer in one line."""
        done = sum(step.passed for step in self.steps)
        word = "pass" if self.passed else "fail"
        found = message(f"{self.kind}.{word}", done=done, total=len(self.steps), title=Name(self.title))
        doubtful = sum(row.doubtful for row in self.rows)
        return message("plan.doubtful", sentence=found, count=doubtful) if doubtful else found


def _row(step: StepResult) -> Row:
    if step.skipped:
        return Row(step.name, "SKIPPED", "", Foreign("an earlier step did not pass"))
    if step.alignment is None:
        # One of the two logs was handed in: nothing went wrong, its partner is missing.
        lonely = (step.reference is None) != (step.candidate is None)
        return Row(step.name, Status.UNMATCHED.value if lonely else "ERROR", "", Foreign(step.problem))
    divergence = step.alignment.first_divergence
    findings = [one for one in step.alignment.findings if one.kind != "remark"] or list(step.alignment.findings)
    said: Message | Foreign = Foreign(findings[0].cause if findings else divergence.reason if divergence else "")
    if not said:
        from reprod_log.report.first_screen import screen_headline

        passed = step.alignment.passed
        total = len(step.alignment.verdict.judgements)
        said = message("plan.entries", total=total) if passed else screen_headline(step.alignment)
    key = divergence.key if divergence else ""
    doubtful = step.passed and any(one.kind == "suspicious pass" for one in step.alignment.findings)
    return Row(step.name, step.alignment.status.value, key, said, doubtful)
