"""The terminal's view of an alignment: the answer first, then a table that fits the width there is."""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reprod_log.judge import Status
from reprod_log.report.formats.text import plain
from reprod_log.report.view import Row, divergence_lines, headline, remarks, rows

if TYPE_CHECKING:
    from reprod_log.alignment import Alignment, Side

STYLES = {
    Status.PASS: "green",
    Status.SUSPECT: "yellow",
    Status.PRECISION: "yellow",
    Status.FAIL: "bold red",
    Status.UNMATCHED: "magenta",
    Status.INCOMPARABLE: "magenta",
    Status.NOTHING: "bold red",
}
_MOST_ROWS = 40
_PIPE_WIDTH = 160


def terminal(*, stderr: bool = False) -> Console:
    """A console that keeps its hands off colour and width where nobody is looking."""
    stream = sys.stderr if stderr else sys.stdout
    asked = os.environ.get("COLUMNS", "")
    width = None if stream.isatty() else int(asked) if asked.isdigit() and int(asked) else _PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False)


def print_alignment(alignment: Alignment, console: Console, *, all_rows: bool = False) -> None:
    """Print the first screen, the table and the notes."""
    console.print(Text(plain(headline(alignment)), style=STYLES[alignment.status]))
    for line in divergence_lines(alignment):
        console.print(Text(f"  {plain(line)}"))
    for finding in alignment.findings:
        console.print(Text(f"  {finding.kind}: {plain(finding.cause)}  [{finding.confidence}]", style="bold"))
        console.print(Text(f"    {plain(finding.evidence)}"))
        if finding.advice:
            console.print(Text(f"    what to do: {plain(finding.advice)}"))
    console.print(_side("reference", alignment.reference))
    console.print(_side("candidate", alignment.candidate))
    everything = rows(alignment)
    shown = everything
    if not all_rows and len(everything) > _MOST_ROWS:
        shown = tuple(row for row in everything if not row.status.passed)[:_MOST_ROWS]
    if shown:
        console.print(_table(shown))
    hidden = len(everything) - len(shown)
    if hidden:
        console.print(Text(f"… {hidden} more entries not shown; --all shows every one", style="dim"))
    for note in remarks(alignment):
        console.print(Text(f"note: {plain(note)}", style="dim"))


def _table(shown: tuple[Row, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("status", no_wrap=True)
    table.add_column("entry", overflow="fold")
    for title in ("mean abs", "max abs", "rel L2"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in shown:
        table.add_row(
            Text(row.status.value, style=STYLES[row.status]),
            Text(plain(row.key)),
            *(_number(row.number(name)) for name in ("mean_abs", "max_abs", "rel_l2")),
        )
        if row.judgement.reason and not row.status.passed:
            table.add_row("", Text(plain(row.judgement.reason), style="dim"), "", "", "")
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.1e}"


def _side(name: str, side: Side) -> Text:
    provenance = side.provenance
    known = " ".join(part for part in (provenance.framework, provenance.framework_version, provenance.dtype) if part)
    origin = f" ({known})" if known else ""
    return Text(f"{name}: {plain(side.source or 'made in this process')}, {side.entries} entries{origin}")
