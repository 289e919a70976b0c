"""Plain text: the first screen, for failure messages, pipes and notebooks."""

from __future__ import annotations

from reprod_log.alignment import Alignment
from reprod_log.messages import Words, message, words
from reprod_log.report import USUAL, Options
from reprod_log.report.first_screen import FirstScreen, first_lines, note_lines, side_lines
from reprod_log.report.view import ReportRow
from reprod_log.report.writing import plain

SUFFIXES = (".txt", ".log")

_MOST_ROWS = 20


def render(alignment: Alignment, options: Options = USUAL) -> str:
    """The first screen and the entries that do not pass; all entries in the full form."""
    phrase = words(options.language)
    screen = FirstScreen(alignment)
    lines = first_lines(screen, phrase) + side_lines(alignment, phrase)
    shown = screen.rows if options.full else screen.own_failures
    if shown == (screen.divergence,):
        # It stands above with all there is to say.
        shown = ()
    text = [" " * line.indent + line.text for line in lines]
    text += [f"{'  ' if place else ''}{plain(phrase(one))}" for place, one in enumerate(alignment.since)]
    if shown:
        most = len(shown) if options.full else _MOST_ROWS
        text += ["", *(_line(row, phrase) for row in shown[:most])]
        left = sum(not row.status.passed for row in screen.rows) - min(len(shown), most)
        if left and not options.full:
            text.append(f"  {phrase(message('table.more', count=left, how='--all'))}")
    notes = note_lines(alignment, phrase)
    if notes:
        text += ["", *(line.text for line in notes)]
    return "\n".join(text) + "\n"


def _line(row: ReportRow, phrase: Words) -> str:
    reason = phrase(row.reason)
    return f"  {row.status.value:<12} {plain(phrase(row.title))}{': ' if reason else ''}{plain(reason)}"
