"""GitHub Actions: a step summary and annotations, when a program runs there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TextIO

from reprod_log.alignment import Alignment
from reprod_log.report.causes import Cause
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.view import ReportRow
from reprod_log.report.writing import plain, shortened
from reprod_log.verdict import Status

MOST_ANNOTATIONS = 10
"""GitHub shows ten of each kind per step."""
_LONGEST = 1_000


def announce(alignment: Alignment, stream: TextIO, *, environment: Mapping[str, str] = os.environ) -> None:
    """Append the Markdown report to the step summary and print annotations, if the environment is that of GitHub."""
    tell(lambda: _summary(alignment), lambda: workflow_commands(alignment), stream, environment=environment)


def _summary(alignment: Alignment) -> str:
    # Outside of GitHub no command needs it.
    from reprod_log.report.formats import markdown

    return markdown.render(alignment)


def tell(
    summary: Callable[[], str],
    commands: Callable[[], Iterable[str]],
    stream: TextIO,
    *,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Append `summary` to the step summary and print the workflow commands; elsewhere neither is even made."""
    path = environment.get("GITHUB_STEP_SUMMARY", "")
    if path:
        with open(Path(path), "a", encoding="utf-8", errors="surrogatepass") as file:
            file.write(summary() + "\n")
    if environment.get("GITHUB_ACTIONS") == "true":
        for line in commands():
            print(line, file=stream)


def workflow_commands(alignment: Alignment) -> list[str]:
    """The annotations: causes with what to do, the verdict, then entries that do not pass; a notice when all do."""
    screen = FirstScreen(alignment)
    verdict = str(screen.headline)
    if screen.passed:
        lines = [workflow_command("notice", "reprod_log", verdict)]
        return [*lines, *_doubts(screen)][: MOST_ANNOTATIONS + 1]
    if alignment.status is Status.UNPROVEN:
        return [workflow_command("warning", "reprod_log", verdict), *_doubts(screen)][:MOST_ANNOTATIONS]
    failed: list[ReportRow] = [*screen.own_failures]
    first = screen.divergence
    if first is not None:
        failed = [first, *(row for row in failed if row.place != first.place)]
    if alignment.status is Status.NOTHING or not failed:
        return [workflow_command("error", "reprod_log", verdict)]
    lines = [_cause(found) for found in screen.shown_causes]
    lines.append(workflow_command("error", "reprod_log", verdict))
    lines += [workflow_command("error", f"{row.status.value} {row.title}", str(row.reason)) for row in failed]
    return lines[:MOST_ANNOTATIONS]


def _cause(one: Cause) -> str:
    """A cause at its line of the program, where that is known: the candidate's, which is to be changed."""
    return workflow_command("error", "cause", str(one.finding.cause), *map(str, one.finding.advice), place=one.place)


def _doubts(screen: FirstScreen) -> list[str]:
    return [workflow_command("warning", "not proven", str(found.cause)) for found in screen.doubts]


def workflow_command(kind: str, title: str, *lines: str, place: tuple[str, int] | None = None) -> str:
    """One workflow command, at a file and line if they are known; nothing in the texts can end it or begin another."""
    where = "" if place is None else f"file={_property(place[0])},line={place[1]},"
    body = "%0A".join(shortened(plain(line), _LONGEST).replace("%", "%25") for line in lines)
    return f"::{kind} {where}title={_property(title)}::{body}"


def _property(text: str) -> str:
    return shortened(plain(text), 200).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
