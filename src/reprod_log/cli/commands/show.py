"""reprod show: what is in a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from reprod_log.cli.options import AllRows, Trust
from reprod_log.errors import counted
from reprod_log.record.stores import load
from reprod_log.record.summary import summarise
from reprod_log.report.plain import plain
from reprod_log.report.terminal import terminal

NAME = "show"
_MOST_ROWS = 60


def run(
    recording: Annotated[Path, typer.Argument(metavar="REC", help="A recording: file or folder.")],
    values: Annotated[bool, typer.Option("--values", help="Read the data: range, mean, NaN and Inf.")] = False,
    all_rows: AllRows = False,
    trust: Trust = False,
) -> int:
    """Show the entries of a recording and where it came from."""
    content = load(recording, trust=trust)
    console = terminal()
    state = "" if content.complete else ", incomplete"
    console.print(Text(f"{recording}: {counted(len(content), 'entry', 'entries')}{state}", style="bold"))
    for name, value in content.provenance.to_dict().items():
        console.print(Text(f"  {name}: {plain(str(value))}"))
    for note in content.notes:
        console.print(Text(f"  note: {plain(note)}", style="yellow"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("entry", overflow="fold")
    table.add_column("dtype", no_wrap=True)
    table.add_column("shape")
    if values:
        for title in ("min", "max", "mean", "NaN/Inf"):
            table.add_column(title, justify="right", no_wrap=True)
    shown = content.entries if all_rows else content.entries[:_MOST_ROWS]
    for entry in shown:
        cells = [plain(entry.dtype), "×".join(map(str, entry.shape)) or "scalar"]
        if values:
            cells += _numbers(entry.array()) if entry.detail == "full" else [entry.detail, "", "", ""]
        table.add_row(Text(plain(str(entry.key))), *cells)
    console.print(table)
    if len(shown) < len(content):
        console.print(Text(f"… and {len(content) - len(shown)} more; --all shows every one", style="dim"))
    return 0


def _numbers(array: np.ndarray) -> list[str]:
    if array.dtype.kind in "OU":
        return ["", "", "", ""]
    found = summarise(array)
    return [*(f"{found[name]:.4g}" for name in ("min", "max", "mean")), f"{found['nan']}/{found['inf']}"]
