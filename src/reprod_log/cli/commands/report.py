"""reprod report: a saved alignment in any format, or on the screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from reprod_log.alignment import Alignment
from reprod_log.cli.answer import after_alignment, exit_code, show, write_reports
from reprod_log.cli.ending import give, tell_next
from reprod_log.cli.groups import Output
from reprod_log.cli.options import AllRows, AsJson, Language, ModuleTree
from reprod_log.report.answer import answer_of
from reprod_log.report.github import announce

NAME = "report"


def run(
    saved: Annotated[Path, typer.Argument(metavar="SAVED", help="An alignment saved as JSON.")],
    outputs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="OUT",
            help="Reports to write, by suffix; by default, the report is shown on the screen.",
        ),
    ] = None,
    language: Language = "en",
    tree: ModuleTree = False,
    all_rows: AllRows = False,
    json: AsJson = None,
) -> int:
    """Show a saved alignment or write it as HTML, Markdown, JUnit or text; exits with the code of its verdict."""
    alignment = Alignment.load(saved)
    output = Output(report=outputs or [], language=language, tree=tree, all_rows=all_rows)
    write_reports(alignment, output)
    if tree or not outputs:
        show(alignment, output)
    give(lambda: answer_of(alignment))
    tell_next(*after_alignment(alignment, saved, reported=bool(outputs), saving=False))
    announce(alignment, sys.stdout)
    return exit_code(alignment)
