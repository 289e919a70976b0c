"""The end of every command that has a verdict: shown, saved, reported, and told by the exit code."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.text import Text

from reprod_log.alignment import Alignment
from reprod_log.cli import ALIGNED, NOT_ALIGNED, NOTHING_COMPARED
from reprod_log.messages import words
from reprod_log.report import format_of, write_report
from reprod_log.report.github import announce
from reprod_log.report.plain import plain
from reprod_log.report.terminal import print_alignment, print_tree, terminal
from reprod_log.verdict import Status


def answer(
    alignment: Alignment,
    *,
    json: Path | None,
    report: list[Path],
    full: bool,
    language: str,
    tree: bool,
    all_rows: bool,
) -> int:
    """Show an alignment, write what was asked for, tell GitHub when run there; the exit code."""
    show(alignment, tree=tree, all_rows=all_rows, language=language)
    if json is not None:
        tell_written(alignment.save(json))
    write_reports(alignment, report, full=full, language=language)
    announce(alignment, sys.stdout)
    return exit_code(alignment)


def write_reports(alignment: Alignment, paths: list[Path], *, full: bool, language: str) -> None:
    """Write the reports and name each."""
    for path in paths:
        tell_written(write_report(alignment, path, full=full, language=language))


def tell_written(path: Path) -> None:
    """Message where something was written."""
    terminal().print(Text(f"written: {plain(str(path))}", style="dim"), soft_wrap=True)


def check_reports(reports: list[Path], language: str) -> None:
    """Refuse a suffix or a language that there is not, before any long work begins."""
    words(language)
    for path in reports:
        format_of(path)


def show(alignment: Alignment, *, tree: bool, all_rows: bool, language: str) -> None:
    """Print the alignment, with its modules as a tree instead of the table if asked to."""
    if tree:
        print_tree(alignment, terminal(), language=language)
    else:
        print_alignment(alignment, terminal(), all_rows=all_rows, language=language)


def exit_code(alignment: Alignment) -> int:
    """0 aligned, 1 not aligned, 5 nothing compared."""
    if alignment.status is Status.NOTHING:
        return NOTHING_COMPARED
    return ALIGNED if alignment.passed else NOT_ALIGNED
