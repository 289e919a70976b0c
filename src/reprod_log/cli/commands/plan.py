"""reprod plan: all steps of a reproduction, from its plan to one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from reprod_log.cli import INTERRUPTED
from reprod_log.cli.options import AllowUnproven, AsJson, Language, OverviewReports
from reprod_log.cli.overview import answer_overview
from reprod_log.errors import result_of
from reprod_log.messages import Name, Words, message, words
from reprod_log.progress import shown
from reprod_log.report.overview import OverviewRow, rows_of
from reprod_log.report.terminal import STYLES
from reprod_log.report.writing import plain
from reprod_log.steps.overview import Overview
from reprod_log.steps.plan import Options
from reprod_log.steps.processes import run_plan

NAME = "plan"
_MOST_LETTERS = 160
"""Of a finding in the table; a longer one stands below it."""


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A Python file that defines `plan`.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where recordings and alignments go.")
    ] = Path("reprod_output"),
    full: Annotated[bool, typer.Option("--full", help="Run at full size, if the plan has one.")] = False,
    as_published: Annotated[
        bool,
        typer.Option("--as-published", help="Include the published mistake, if the plan has one."),
    ] = False,
    only: Annotated[
        list[str], typer.Option("--only", metavar="STEP", help="Run only this step; may be given several times.")
    ] = [],  # noqa: B006  # typer's way of saying 'none given'
    stop: Annotated[bool, typer.Option("--stop", help="Skip the steps after the first that does not pass.")] = False,
    allow_unproven: AllowUnproven = False,
    together: Annotated[
        bool, typer.Option("--together", help="Run both sides in this process, where each layer is also run alone.")
    ] = False,
    report: OverviewReports = [],  # noqa: B006
    language: Language = "en",
    json: AsJson = None,
) -> int:
    """Run the steps of a reproduction, each side in its own process, and compare them."""
    render = words(language)
    options = Options(full=full, as_published=as_published, folder=output)
    interruption = False
    try:
        with shown(language=language):
            overview = run_plan(plan, options, only=only, stop=stop, together=together, allow_unproven=allow_unproven)
    except KeyboardInterrupt as stopping:
        partial = result_of(stopping, Overview)
        if partial is None:
            raise
        overview, interruption = partial, True
    rows = rows_of(overview)
    long = ((row.name, finding) for row in rows if len(finding := render(row.answer)) > _MOST_LETTERS)
    below: list[Table | Text] = [
        _table(rows, render),
        *(Text(plain(f"{name}: {finding}")) for name, finding in long),
        Text(plain(render(message("plan.folder", folder=Name(output)))), style="dim"),
    ]
    # The report of the first step that does not pass; of a plan that passes, all of them in a browser.
    first = next((step for step in overview.steps if step.alignment is not None and not step.passed), None)
    then = ("report", output / first.name / "alignment.json", "report.html") if first else ("serve", output)
    code = answer_overview(overview, below, ("reprod", *then), report=report, language=language)
    return INTERRUPTED if interruption else code


def _table(lines: tuple[OverviewRow, ...], render: Words) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(render.get("plan.step"), no_wrap=True)
    table.add_column(render.get("status"), no_wrap=True)
    table.add_column(render.get("first"), overflow="fold", ratio=2)
    table.add_column(render.get("plan.finding"), overflow="fold", ratio=3)
    for number, row in enumerate(lines, start=1):
        finding = _cut(render(row.answer))
        table.add_row(
            Text(plain(f"{number} {row.name}")),
            Text(row.word, style=STYLES[row.status]),
            Text(plain(render(row.first)) if row.first else "–"),
            Text(plain(finding) or "–"),
        )
    return table


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"
