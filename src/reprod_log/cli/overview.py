"""The end of the commands that judge several steps: all of them are shown, reported, and become one exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from reprod_log.cli import ALIGNED, NOT_ALIGNED, NOT_PROVEN, NOTHING_COMPARED
from reprod_log.cli.ending import give, tell_next, tell_written
from reprod_log.messages import words
from reprod_log.report.overview import announce_overview, overview_answer, summary_of, write_overview
from reprod_log.report.terminal import STYLES, terminal
from reprod_log.report.writing import plain
from reprod_log.steps.overview import Overview
from reprod_log.verdict import Status


def answer_overview(
    overview: Overview, shown: Sequence[Table | Text], then: Sequence[str | Path], *, report: list[Path], language: str
) -> int:
    """Print the answer of several steps with what is `shown` below it, write the reports; the exit code."""
    console = terminal()
    console.print(Text(plain(words(language)(summary_of(overview))), style=STYLES[overview.status]))
    for one in shown:
        console.print(one)
    for path in report:
        tell_written(write_overview(overview, path, language=language))
    give(lambda: overview_answer(overview))
    tell_next(*then)
    announce_overview(overview, sys.stdout)
    if overview.status is not Status.FAIL:
        return ALIGNED if overview.passed else NOT_PROVEN
    compared = [step for step in overview.steps if step.alignment is not None]
    nothing = all(step.status is Status.NOTHING for step in compared)
    failed = any(step.problem for step in overview.steps)
    return NOTHING_COMPARED if nothing and not failed else NOT_ALIGNED
