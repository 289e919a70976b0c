"""The terminal's view of an alignment: the answer first, then a table that fits the width there is."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reprod_log.messages import Words, message, words
from reprod_log.report.first_screen import FirstScreen, Role, first_lines, note_lines, side_lines
from reprod_log.report.groups import ModuleGroup, module_tree, share
from reprod_log.report.view import MARKS, ReportRow
from reprod_log.report.writing import plain, shortened, times
from reprod_log.verdict import Status

if TYPE_CHECKING:
    from rich.tree import Tree

    from reprod_log.alignment import Alignment

STYLES = {
    Status.PASS: "green",
    Status.ACCEPTED: "cyan",
    Status.SUSPECT: "yellow",
    Status.PRECISION: "yellow",
    Status.FAIL: "bold red",
    Status.UNMATCHED: "magenta",
    Status.INCOMPARABLE: "magenta",
    Status.UNPROVEN: "bold yellow",
    Status.INCOMPLETE: "bold red",
    Status.NOTHING: "bold red",
}
ROLE_STYLES: dict[Role, str] = {
    "headline": "bold",
    "where": "",
    "cause": "bold",
    "detail": "",
    "advice": "bold",
    "warning": "yellow",
    "side": "",
    "note": "dim",
}
_USUAL_ROWS = 40
"""Up to so many entries are all shown; of more, only those that do not pass."""
_MOST_FAILURES = 20
"""More of them push the answer off the screen."""
_PIPE_WIDTH = 160
_MOST_REASONS = 5
_NUMEROUS = (Status.FAIL, Status.ACCEPTED)
_LONGEST_KEY = 300
_BESIDE_STATUS = 4
"""The mark before a status and the space behind it."""
_NUMBER_WIDTH = 10
_REASON_WIDTH = 46
"""Room in which a reason under its key can be read."""
_SHORTEST_LINE = 12
_NARROW = 56


def terminal(*, stderr: bool = False) -> Console:
    """A console without colour and of a fixed width where its output is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    asked = os.environ.get("COLUMNS", "")
    width = None if stream.isatty() else int(asked) if asked.isdigit() and int(asked) else _PIPE_WIDTH
    return _Console(stderr=stderr, width=width, highlight=False)


class _Console(Console):
    """A console whose reader may leave early (… | head): the rest is not shown, and the program goes on to its end."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        drop_output(self.file)


def drop_output(stream: IO[str]) -> None:
    """Send what is still to be written nowhere, so that the end of the program does not complain of it."""
    nowhere, number = os.open(os.devnull, os.O_WRONLY), stream.fileno()
    # A number that was closed may be the one that was given out just now.
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


def print_alignment(
    alignment: Alignment, console: Console, *, all_rows: bool = False, tree: bool = False, language: str = "en"
) -> None:
    """Print the first screen, the table (or the modules as a tree) and the notes."""
    phrase = words(language)
    screen = FirstScreen(alignment)
    for line in first_lines(screen, phrase) + side_lines(alignment, phrase):
        style = STYLES[alignment.status] if line.role == "headline" else ROLE_STYLES[line.role]
        print_indented(line.text, line.indent, console, style)
    if tree:
        _print_tree(screen.rows, console)
    else:
        _print_table(screen, console, phrase, all_rows=all_rows)
    for line in note_lines(alignment, phrase):
        print_indented(line.text, 0, console, "dim")


def _print_table(screen: FirstScreen, console: Console, phrase: Words, *, all_rows: bool) -> None:
    shown = everything = screen.rows
    if not all_rows and len(everything) > _USUAL_ROWS:
        shown = screen.own_failures[:_MOST_FAILURES]
    if shown:
        console.print(_table(shown, phrase, console.width))
    hidden = len(everything) - len(shown)
    if hidden:
        console.print(Text(phrase(message("table.more", count=hidden, how="--all")), style="dim"))


def print_indented(text: str, indent: int, console: Console, style: str = "", *, hanging: int = 0) -> None:
    """Wrap the text with every line set in alike; nothing is filled up with spaces, so that it can be pasted.

    The second and later lines are set in by `hanging` more.
    """
    lines = Text(text).wrap(console, max(console.width - indent - hanging, 20))
    for place, part in enumerate(lines):
        part.rstrip()
        space = indent + (hanging if place else 0)
        console.print(Text(" " * space + part.plain, style=style), soft_wrap=True)


def _print_tree(everything: tuple[ReportRow, ...], console: Console) -> None:
    """The modules as a tree, each with its worst status, how many entries do not pass, and its largest error."""
    from rich.tree import Tree  # most commands never show one

    top = Tree("", hide_root=True)
    for node in module_tree(everything):
        _grow(top, node)
    console.print(top)


def _grow(tree: Tree, node: ModuleGroup) -> None:
    label = Text()
    label.append(f"{MARKS[node.status]} {node.status.value} ", style=STYLES[node.status])
    label.append(plain(node.name), style="bold" if node.children else "")
    if node.partner:
        label.append(f" ↔ {plain(node.partner)}")
    if node.layer_type and node.layer_type != node.name:
        label.append(f" {plain(node.layer_type)}", style="dim")
    label.append(f"  {share(node.counts)}  rel L2 {node.worst.text('rel_l2')}", style="dim")
    branch = tree.add(label)
    for child in node.children:
        _grow(branch, child)


def _table(shown: tuple[ReportRow, ...], phrase: Words, width: int) -> Table:
    floors = any(row.times_floor is not None for row in shown)
    # The reason of the first divergence stands on top; those of many failures would only push each other away.
    few = sum(row.status in _NUMEROUS for row in shown) <= _MOST_REASONS
    reasons = [
        plain(phrase(row.reason)) if row.status is not Status.PASS and (few or row.status not in _NUMEROUS) else ""
        for row in shown
    ]
    keys = [shortened(plain(phrase(row.title)), _LONGEST_KEY) for row in shown]
    room = width - max(len(row.status.value) for row in shown) - _BESIDE_STATUS
    needed = max(*map(cell_len, keys), _REASON_WIDTH if any(reasons) else 0)
    # Of estimates the relative error is what is known.
    ratios = any((row.times_floor if floors else row.times_limit) is not None for row in shown)
    columns = _columns(room - needed, fewest=int(width >= _NARROW), floors=floors, ratios=ratios)
    room -= _NUMBER_WIDTH * len(columns)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(phrase.get("status"), no_wrap=True)
    table.add_column(phrase.get("entry"), overflow="fold")
    for name in columns:
        table.add_column(phrase.get(name), justify="right", no_wrap=True)
    for row, key, reason in zip(shown, keys, reasons, strict=True):
        table.add_row(
            Text(f"{MARKS[row.status]} {row.status.value}", style=STYLES[row.status]),
            Text(folded(key, room)),
            *(_cell(row, name) for name in columns),
        )
        if reason:
            table.add_row("", Text(reason, style="dim"))
    return table


def folded(key: str, width: int) -> str:
    """The key on as many lines as it needs, broken where its parts meet as far as that is possible."""
    lines = []
    while cell_len(key) > max(width, _SHORTEST_LINE):
        head = key[: max(width, _SHORTEST_LINE)]
        # Between two words, else between two parts of a name.
        at = head.rfind(" ") + 1
        if at <= len(head) // 3:
            at = max(head.rfind(sign) for sign in "/.#:@") + 1
        at = at if at > len(head) // 3 else len(head)
        lines.append(key[:at].rstrip())
        key = key[at:]
    return "\n".join([*lines, key])


def _columns(room: int, *, fewest: int, floors: bool, ratios: bool = True) -> list[str]:
    """The numbers for which there is room beside the keys, the most telling ones first; at least `fewest` of them."""
    times = "times_floor" if floors else "times_limit"
    ranked = [times, "rel_l2", "max_abs", "mean_abs"] if ratios else ["rel_l2", times, "max_abs", "mean_abs"]
    count = min(max(room // _NUMBER_WIDTH, fewest), len(ranked))
    return [name for name in ("mean_abs", "max_abs", "rel_l2", "times_limit", "times_floor") if name in ranked[:count]]


def _cell(row: ReportRow, name: str) -> str:
    if name.startswith("times_"):
        return times(row.times_floor if name == "times_floor" else row.times_limit)
    return row.text(name)
