"""reprod show: what is in a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reprod_log.cli.ending import give, tell_compare
from reprod_log.cli.options import AsJson, Language, Trust, recorded
from reprod_log.messages import Code, Name, Words, message, words
from reprod_log.recording import Entry, Recording
from reprod_log.recording.stores import load
from reprod_log.recording.summary import summarise
from reprod_log.report.facts import origin_lines, passes_of
from reprod_log.report.terminal import print_indented, terminal
from reprod_log.report.writing import plain, shortened

NAME = "show"
_MOST_ROWS = 60
_LONGEST = 300
"""Of a line about the origin; a model may have thousands of parameters."""
_TEXTS, _VALUES = ("dtype", "shape"), ("side.min", "side.max", "side.mean", "show.nan_inf")
"""The titles of columns: facts of every entry, and those that --values adds."""


def run(
    recording: Annotated[Path, typer.Argument(metavar="REC", callback=recorded, help="A recording: file or folder.")],
    values: Annotated[bool, typer.Option("--values", help="Read the data: range, mean, NaN and Inf.")] = False,
    all_rows: Annotated[
        bool, typer.Option("--all", help=f"Show every entry, not only the first {_MOST_ROWS}.")
    ] = False,
    trust: Trust = False,
    language: Language = "en",
    json: AsJson = None,
) -> int:
    """Show the entries of a recording and where it came from."""
    render, console = words(language), terminal()
    content = load(recording, trust=trust)
    facts = [message("entries.count", count=len(content))]
    facts += [] if content.complete else [message("recording.incomplete")]
    facts += [passes_of(content)] if len(content.runs) > 1 else []
    title = message("recording.title", path=Name(recording), facts=tuple(facts))
    console.print(Text(plain(render(title)), style="bold"), soft_wrap=True)
    for name, text in origin_lines(content.provenance):
        print_indented(f"{plain(name)}: {shortened(plain(text), _LONGEST)}", 2, console, hanging=2)
    for note in content.notes:
        print_indented(f"{render.get('note')}: {plain(render(note))}", 2, console, "yellow", hanging=2)
    shown = content.entries if all_rows else content.entries[:_MOST_ROWS]
    rows = [(plain(str(entry.key)), _facts(entry, render, values=values)) for entry in shown]
    _print_rows(rows, (*_TEXTS, *(_VALUES if values else ())), render, console)
    if len(shown) < len(content):
        more = message("table.more", count=len(content) - len(shown), how=Code("--all"))
        console.print(Text(render(more), style="dim"))
    give(lambda: _answer(content))
    tell_compare(recording)
    return 0


def _answer(content: Recording) -> dict[str, Any]:
    return {
        "complete": content.complete,
        "passes": [run or "plain" for run in content.runs],
        "origin": dict(origin_lines(content.provenance)),
        "notes": [str(note) for note in content.notes],
        "entries": [
            {"key": str(entry.key), "dtype": entry.dtype, "shape": list(entry.shape), "detail": entry.detail}
            for entry in content.entries
        ],
    }


def _print_rows(rows: list[tuple[str, list[str]]], ids: tuple[str, ...], render: Words, console: Console) -> None:
    """One line per entry where it fits; else its name on a line of its own, for a broken name cannot be copied."""
    titles = [render.get(id) for id in ids]
    widths = [max(map(cell_len, column)) for column in zip(titles, *(facts for _, facts in rows), strict=True)]
    longest = max(cell_len(key) for key in (render.get("entry"), *(key for key, _ in rows)))
    beside = longest + sum(widths) + 2 * len(widths) <= console.width
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(render.get("entry"), no_wrap=True, overflow="ignore") if beside else table.add_column("")
    for id, title in zip(ids, titles, strict=True):
        table.add_column(title, justify="left" if id in _TEXTS else "right", no_wrap=True)
    for key, facts in rows:
        # As Text: rich would take the unit of a date, in brackets, for a style.
        table.add_row(Text(key) if beside else "", *map(Text, facts))
    if beside or not rows:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    head, *lines = captured.get().splitlines()
    console.print(Text.from_ansi(head.rstrip()), soft_wrap=True)
    for (key, _), line in zip(rows, lines, strict=True):
        console.print(Text(key), soft_wrap=True)
        console.print(Text.from_ansi(line.rstrip()), soft_wrap=True)


def _facts(entry: Entry, render: Words, *, values: bool) -> list[str]:
    found = [plain(entry.dtype), "×".join(map(str, entry.shape)) or render.get("recording.scalar")]
    if values:
        found += _numbers(entry.array()) if entry.detail == "full" else [entry.detail, "", "", ""]
    return found


def _numbers(array: np.ndarray) -> list[str]:
    if array.dtype.kind in "OUSMm":
        return ["", "", "", ""]
    found = summarise(array)
    return [*(f"{found[name]:.4g}" for name in ("min", "max", "mean")), f"{found['nan']}/{found['inf']}"]
