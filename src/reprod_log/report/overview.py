"""The report of several steps: a page with a table that leads to each step's own, Markdown, and GitHub's summary."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from reprod_log.errors import UsageError
from reprod_log.messages import known_languages, message, words
from reprod_log.recording.files import replacing
from reprod_log.report import render_report, write_report
from reprod_log.report.formats.markdown import LIMIT
from reprod_log.report.github import MOST_ANNOTATIONS, tell, workflow_command
from reprod_log.report.html_data import phrases_for
from reprod_log.report.markdown import Section, code, text
from reprod_log.report.page import content_policy, embedded, page, scripts
from reprod_log.report.view import MARKS
from reprod_log.steps.overview import Overview
from reprod_log.verdict import Status

_SCRIPTS = ("script/words.js", "script/overview.js")
_SUMMARY_LIMIT = 1_000_000
"""GitHub refuses a step summary of more than 1 MiB."""


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
    told = words(language)
    lines = [
        (text(row.name), f"{MARKS[row.status]} {row.word}", code(row.first) if row.first else "", text(told(row.said)))
        for row in overview.rows
    ]
    titles = [told.get(name) for name in ("plan.step", "status", "first", "plan.finding")]
    mark = MARKS[Status.PASS if overview.passed else Status.FAIL]
    parts = [f"# {mark} {text(told(overview.summary))}\n", Section("", titles, lines).render()]
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
        parts.append(f"*{told(message('plan.left.out', count=left, why=told.get('left.limit')))}*\n")
    return "\n".join(parts)


def announce_overview(overview: Overview, stream: TextIO) -> None:
    """The table into GitHub's step summary and an annotation per step that does not pass, when run there."""
    tell(lambda: markdown(overview, most=_SUMMARY_LIMIT), lambda: _commands(overview), stream)


def _commands(overview: Overview) -> list[str]:
    kind = "notice" if overview.passed else "error"
    lines = [workflow_command(kind, "reprod_log", words()(overview.summary))]
    for row, step in zip(overview.rows, overview.steps, strict=True):
        if not step.passed or row.doubtful:
            where = f"{row.first}: " if row.first else ""
            kind = "warning" if step.passed else "error"
            lines.append(workflow_command(kind, f"{row.word} {row.name}", f"{where}{row.finding}"))
    return lines[:MOST_ANNOTATIONS]


def _html(overview: Overview, path: Path, language: str) -> str:
    from reprod_log.version import __version__

    folder = path.with_name(f"{path.stem}_steps")
    links = {}
    for place, step in enumerate(overview.steps):
        if step.alignment is not None:
            # Names of steps may hold what a file name may not; a number then keeps them apart.
            name = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in step.name)[:80]
            name = name if name == step.name else f"{name}_{place + 1}"
            write_report(step.alignment, folder / f"{name}.html", language=language)
            links[place] = f"{folder.name}/{name}.html"
    script = scripts(*_SCRIPTS)
    data = {
        "words": {one: words(one).sentences for one in known_languages()},
        "statuses": [],
        "phrases": phrases_for([str(row.said) for row in overview.rows if isinstance(row.said, str)]),
    }
    return page(
        "overview.html.j2",
        language=language,
        overview=overview,
        links=links,
        marks=MARKS,
        version=__version__,
        data=embedded(data),
        script=script,
        content_policy=content_policy([script]),
        status="PASS" if overview.passed else "FAIL",
    )
