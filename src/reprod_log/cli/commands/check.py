"""reprod check: a whole hand-in folder, all steps in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from reprod_log.cli import NOTHING_COMPARED
from reprod_log.cli.ending import tell, tell_next, typed_again
from reprod_log.cli.options import AllowUnproven, AsJson, Language, Limits, OverviewReports, Trust
from reprod_log.cli.overview import answer_overview
from reprod_log.messages import Name, Words, message, words
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.overview import remarks_of
from reprod_log.report.terminal import STYLES
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
    """Judge a finished submission: pair the logs by their names and compare all pairs."""
    render = words(language)
    hand_in = check_folder(folder, limits=limit, trust=trust, allow_unproven=allow_unproven)
    if not hand_in.steps:
        tell(message("check.nothing", folder=Name(folder)))
        tell_next("reprod", "compare", "REF", "CAND")
        return NOTHING_COMPARED
    failed = [step for step in hand_in.steps if not step.passed]
    shown: list[Table | Text] = [
        _table(hand_in, render),
        *(Text(plain(f"{step.name}: {_why(step, render)}")) for step in failed),
        *(Text(plain(render(one)), style="dim") for one in remarks_of(hand_in)),
    ]
    first = next((step for step in failed if step.reference and step.candidate), None)
    then = ["reprod", "compare", str(first.reference), str(first.candidate)] if first else []
    if not then:
        then = ["reprod", "serve", str(folder)] if report else typed_again("--report", "report.html")
    return answer_overview(hand_in, shown, then, report=report, language=language)


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
    screen = FirstScreen(step.alignment)
    answer = screen.causes[0].cause if screen.causes else screen.headline
    if first is None:
        return render(answer)
    return render(message("check.failed", answer=answer, key=Name(first.key), reason=first.reason or ""))
