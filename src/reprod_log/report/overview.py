"""The report of several steps: a page with a table that leads to each step's own, Markdown, and GitHub's summary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

from reprod_log.alignment import Alignment
from reprod_log.errors import UsageError
from reprod_log.messages import Message, Name, Names, message, words
from reprod_log.recording.files import replacing
from reprod_log.report import Options, render_report
from reprod_log.report.answer import answer_of
from reprod_log.report.depth import depth_picture
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.formats.html import content_policy, page, render, scripts, write_assets
from reprod_log.report.formats.markdown import LIMIT, Section, code, text
from reprod_log.report.github import MOST_ANNOTATIONS, tell, workflow_command
from reprod_log.report.view import MARKS, ReportRow, first_in_words, rows
from reprod_log.steps.overview import Overview, StepResult
from reprod_log.verdict import Status
from reprod_log.version import __version__

_SCRIPTS = ("script/words.js", "script/overview.js")
_SUMMARY_LIMIT = 1_000_000
"""GitHub refuses a step summary of more than 1 MiB."""


@dataclass(frozen=True)
class OverviewRow:
    """One line of the table."""

    name: str
    word: str
    """The status, or SKIPPED, or ERROR when the step could not be done."""
    first: Message | None
    """The first divergence in words."""
    answer: Message | str
    """The surest cause or note, else why it did not pass, else how much passed."""
    doubtful: bool = False
    """It passes although a doubt says that this proves nothing, because that was allowed."""
    alignment: Alignment | None = None

    @cached_property
    def entries(self) -> tuple[ReportRow, ...]:
        return () if self.alignment is None else rows(self.alignment)

    @property
    def sure(self) -> str:
        """How much the verdict can be relied on, in a word; '' where there is none."""
        return "" if self.alignment is None else FirstScreen(self.alignment).certainty.level

    @property
    def margin(self) -> float | None:
        """The entry that is furthest towards, or beyond, its limit, in limits."""
        return max((row.times_limit for row in self.entries if row.times_limit is not None), default=None)

    @property
    def finding(self) -> str:
        """The answer in English."""
        return words()(self.answer)

    @property
    def status(self) -> Status:
        """The status whose colour the line has."""
        if self.doubtful:
            return Status.UNPROVEN
        return Status(self.word) if self.word in Status.__members__ else Status.NOTHING


def rows_of(overview: Overview) -> tuple[OverviewRow, ...]:
    """The table: each step with its answer in a line."""
    return tuple(_row(step) for step in overview.steps)


def summary_of(overview: Overview) -> Message:
    """The answer of all steps in one line."""
    done = sum(step.passed for step in overview.steps)
    word = overview.status.value.lower()
    found = message(f"{overview.kind}.{word}", done=done, total=len(overview.steps), title=Name(overview.title))
    doubtful = sum(row.doubtful for row in rows_of(overview))
    return message("plan.doubtful", sentence=found, count=doubtful) if doubtful else found


def remarks_of(overview: Overview) -> tuple[Message, ...]:
    """What a reader should know beside the table: steps that have no logs, files that were not used."""
    found = (("check.absent", overview.absent), ("check.unused", overview.unused))
    return tuple(message(id, names=Names(names)) for id, names in found if names)


def _row(step: StepResult) -> OverviewRow:
    if step.skipped:
        return OverviewRow(step.name, "SKIPPED", None, message("plan.skipped"))
    if step.alignment is None:
        # Of two logs one is there: nothing went wrong, its partner is missing.
        unmatched = (step.reference is None) != (step.candidate is None)
        return OverviewRow(step.name, Status.UNMATCHED.value if unmatched else "ERROR", None, step.problem or "")
    screen, divergence = FirstScreen(step.alignment), step.alignment.first_divergence
    # Of a failure the cause or the reason; doubts and remarks are the answer where there is no failure.
    findings = [*screen.causes, *screen.hints] or ([] if divergence else [*screen.doubts, *screen.observations])
    answer: Message | str = findings[0].cause if findings else (divergence and divergence.reason) or ""
    if not answer:
        answer = screen.passing if screen.passed else screen.headline
    doubtful = step.passed and bool(step.alignment.doubts)
    status = step.alignment.status.value
    return OverviewRow(step.name, status, first_in_words(step.alignment), answer, doubtful, step.alignment)


def write_overview(overview: Overview, path: Path, *, language: str = "en", full: bool = False) -> Path:
    """One report of all steps: .md holds them all, .html is a table whose lines lead to a page per step beside it."""
    if path.suffix.lower() in (".html", ".htm"):
        content = _html(overview, path, language)
    elif path.suffix.lower() in (".md", ".markdown"):
        content = markdown(overview, language=language, full=full)
    else:
        raise UsageError(
            f"the report of several steps is .html or .md, not {path.name!r}; "
            f"for other formats use reprod report on a step's saved alignment"
        )
    with replacing(path) as file:
        file.write(content.encode("utf-8", "surrogatepass"))
    return path


def markdown(overview: Overview, *, language: str = "en", full: bool = False, most: int = LIMIT) -> str:
    """The table and the steps' own reports, those that do not pass first, as many as fit into `most` characters."""
    phrase = words(language)
    lines = [
        (
            text(row.name),
            f"{MARKS[row.status]} {row.word}",
            code(phrase(row.first)) if row.first else "",
            text(phrase(row.answer)),
        )
        for row in rows_of(overview)
    ]
    titles = [phrase.get(name) for name in ("plan.step", "status", "first", "plan.finding")]
    mark = MARKS[overview.status]
    parts = [f"# {mark} {text(phrase(summary_of(overview)))}\n", Section("", titles, lines).render()]
    parts += [f"{text(phrase(one))}\n" for one in remarks_of(overview)]
    left, room = 0, most - sum(map(len, parts)) - 500
    for step in sorted(overview.steps, key=lambda step: step.passed):
        if step.alignment is None:
            continue
        body = render_report(step.alignment, format="markdown", language=language, full=full).strip()
        part = f"<details><summary>{text(step.name)}</summary>\n\n{body}\n\n</details>\n"
        if len(part) > room:
            left += 1
            continue
        room -= len(part)
        parts.append(part)
    if left:
        parts.append(f"*{phrase(message('plan.left.out', count=left, why=phrase.get('left.limit')))}*\n")
    return "\n".join(parts)


def overview_answer(overview: Overview) -> dict[str, Any]:
    """Several steps for programs: the answer of all, and of each that could be compared."""
    steps = [
        {
            "name": row.name,
            "status": row.word,
            "passed": step.passed,
            "finding": row.finding,
            "answer": None if step.alignment is None else answer_of(step.alignment),
        }
        for row, step in zip(rows_of(overview), overview.steps, strict=True)
    ]
    return {
        "status": overview.status.value,
        "passed": overview.passed,
        "headline": summary_of(overview).to_dict(),
        "steps": steps,
        "absent": list(overview.absent),
        "unused": list(overview.unused),
    }


def announce_overview(overview: Overview, stream: TextIO) -> None:
    """The table into GitHub's step summary and an annotation per step that does not pass, when run there."""
    tell(lambda: markdown(overview, most=_SUMMARY_LIMIT), lambda: _commands(overview), stream)


def _commands(overview: Overview) -> list[str]:
    lines = [workflow_command(_ANNOTATED[overview.status], "reprod_log", words()(summary_of(overview)))]
    for row, step in zip(rows_of(overview), overview.steps, strict=True):
        if not step.passed or row.doubtful:
            where = f"{words()(row.first)}: " if row.first else ""
            kind = "warning" if step.passed else _ANNOTATED.get(row.status, "error")
            lines.append(workflow_command(kind, f"{row.word} {row.name}", f"{where}{row.finding}"))
    return lines[:MOST_ANNOTATIONS]


_ANNOTATED = {Status.PASS: "notice", Status.UNPROVEN: "warning", Status.FAIL: "error"}


def _html(overview: Overview, path: Path, language: str) -> str:
    folder = path.with_name(f"{path.stem}_steps")
    links = {}
    for place, step in enumerate(overview.steps):
        if step.alignment is not None:
            # Names of steps may hold what a file name may not; a number then keeps them apart.
            name = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in step.name)[:80]
            name = name if name == step.name else f"{name}_{place + 1}"
            content = render(step.alignment, Options(language=language, assets="."))
            with replacing(folder / f"{name}.html") as file:
                file.write(content.encode("utf-8", "surrogatepass"))
            links[place] = f"{folder.name}/{name}.html"
    if links:
        write_assets(folder)
    script = scripts(*_SCRIPTS)
    shown = rows_of(overview)
    return page(
        "overview.html.j2",
        language=language,
        summary=summary_of(overview),
        rows=shown,
        remarks=remarks_of(overview),
        links=links,
        kind=overview.kind,
        sides=next((row.alignment for row in shown if row.alignment is not None), None),
        curves=[depth_picture(row.entries, words(language), width=160, height=28) for row in shown],
        marks=MARKS,
        version=__version__,
        data={"statuses": []},
        script=script,
        content_policy=content_policy([script]),
        status=overview.status,
    )
