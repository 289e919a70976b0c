"""reprod check: a whole hand-in folder, all steps in one table."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from reprod_log.cli import ALIGNED, NOT_ALIGNED, NOT_PROVEN, NOTHING_COMPARED
from reprod_log.cli.answer import tell_written
from reprod_log.cli.ending import give, tell_next
from reprod_log.cli.options import AllowUnproven, AsJson, Language, Limits, OverviewReports, Trust
from reprod_log.messages import Name, Words, message, words
from reprod_log.report.first_screen import screen_headline
from reprod_log.report.overview import announce_overview, overview_answer, remarks_of, summary_of, write_overview
from reprod_log.report.terminal import STYLES, terminal
from reprod_log.report.writing import plain
from reprod_log.steps.hand_in import check_folder
from reprod_log.steps.overview import Overview, StepResult
from reprod_log.verdict import Status

NAME = "check"


def run(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder with the logs, e.g. log_reprod/.")],
    limit: Limits = [],  # noqa: B006  # typer's way of saying 'none given'
    report: OverviewReports = [],  # noqa: B006
    language: Language = "en",
    json: AsJson = None,
    trust: Trust = False,
    allow_unproven: AllowUnproven = False,
) -> int:
    """Judge a finished hand-in: pair the logs by their names and compare all pairs."""
    render = words(language)
    hand_in = check_folder(folder, limits=limit, trust=trust, allow_unproven=allow_unproven)
    console = terminal()
    if not hand_in.steps:
        nothing = plain(render(message("check.nothing", folder=Name(folder))))
        console.print(Text(nothing, style="bold red"))
        return NOTHING_COMPARED
    failed = [step for step in hand_in.steps if not step.passed]
    console.print(Text(plain(render(summary_of(hand_in))), style=STYLES[hand_in.status]))
    console.print(_table(hand_in, render))
    for step in failed:
        console.print(Text(plain(f"{step.name}: {_why(step, render)}")))
    for remark in remarks_of(hand_in):
        console.print(Text(plain(render(remark)), style="dim"), soft_wrap=True)
    for path in report:
        tell_written(write_overview(hand_in, path, language=language), language)
    give(lambda: overview_answer(hand_in))
    first = next((step for step in failed if step.reference and step.candidate), None)
    if first is not None:
        tell_next(shlex.join(["reprod", "compare", str(first.reference), str(first.candidate)]), language)
    announce_overview(hand_in, sys.stdout)
    return {Status.PASS: ALIGNED, Status.UNPROVEN: NOT_PROVEN}.get(hand_in.status, NOT_ALIGNED)


def _table(hand_in: Overview, render: Words) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(render.get("status"), no_wrap=True)
    table.add_column(render.get("plan.step"), no_wrap=True)
    table.add_column(render.get("check.logs"), overflow="fold")
    table.add_column(render.get("entries"), justify="right")
    table.add_column(render.get("check.worst"), justify="right", no_wrap=True)
    table.add_column(render.get("check.published"), no_wrap=True)
    for step in hand_in.steps:
        status = step.alignment.status if step.alignment else Status.INCOMPARABLE
        if step.reference is None or step.candidate is None:
            status = Status.UNMATCHED
        table.add_row(
            Text(status.value, style=STYLES[status]),
            step.subject.name if step.subject else "–",
            Text(plain(step.name)),
            str(len(step.alignment.comparison.rows)) if step.alignment else "–",
            _worst(step),
            step.published or "–",
        )
    return table


def _worst(step: StepResult) -> str:
    rows = step.alignment.comparison.rows if step.alignment else ()
    values = [row.measurement.mean_abs for row in rows if row.measurement is not None]
    return f"{max(values):.1e}" if values else "–"


def _why(step: StepResult, render: Words) -> str:
    if step.problem is not None or step.alignment is None:
        return render(step.problem or "")
    if step.alignment.status is Status.UNPROVEN:
        return render(step.alignment.doubts[0].cause)
    first = step.alignment.first_divergence
    answer = screen_headline(step.alignment)
    if first is None:
        return render(answer)
    return render(message("check.failed", answer=answer, key=Name(first.key), reason=first.reason or ""))
