"""reprod report: a saved alignment in any format, or on the screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from reprod_log.alignment import Alignment
from reprod_log.cli.commands.compare import exit_code
from reprod_log.cli.options import AllRows
from reprod_log.report import format_of, write_report
from reprod_log.report.github import announce
from reprod_log.report.terminal import print_alignment, print_tree, terminal

NAME = "report"


def run(
    saved: Annotated[Path, typer.Argument(metavar="SAVED", help="An alignment saved as JSON.")],
    outputs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[OUT]...", help="Reports to write; .html, .md, .json, .xml or .txt. None: the screen."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Every entry in Markdown, text and JUnit.")] = False,
    language: Annotated[str, typer.Option("--language", metavar="en|zh", help="The language of the report.")] = "en",
    tree: Annotated[bool, typer.Option("--tree", help="Show the modules as a tree with their statuses.")] = False,
    all_rows: AllRows = False,
) -> int:
    """Show a saved alignment or write it as HTML, Markdown, JUnit or text; leaves with the code of its verdict."""
    alignment = Alignment.load(saved)
    outputs = outputs or []
    for path in outputs:
        format_of(path)
    for path in outputs:
        write_report(alignment, path, full=full, language=language)
    if tree:
        print_tree(alignment, terminal())
    elif not outputs:
        print_alignment(alignment, terminal(), all_rows=all_rows, language=language)
    announce(alignment, sys.stdout)
    return exit_code(alignment)
