"""How an alignment shows itself in a notebook: the first screen and what does not pass, without scripts."""

from __future__ import annotations

from markupsafe import Markup

from reprod_log.alignment import Alignment
from reprod_log.messages import Words, words
from reprod_log.report.first_screen import Line, first_lines, first_screen, side_lines
from reprod_log.report.view import MARKS, ReportRow, rows
from reprod_log.report.writing import plain, times

_MOST_ROWS = 20
_CELL = Markup('<td style="text-align:{}">{}</td>')
_COLUMNS = ("status", "entry", "rel_l2", "max_abs", "mean_abs", "times_limit")


def render(alignment: Alignment, *, language: str = "en") -> str:
    """A piece of HTML with its own styles, to stand in any page, light or dark."""
    phrase = words(language)
    everything = rows(alignment)
    screen = first_screen(alignment, all_rows=everything)
    edge = "#1a7f37" if screen.passed else "#cf222e"
    lines = first_lines(screen, phrase) + side_lines(alignment, phrase)
    shown = screen.own_failures(everything)[:_MOST_ROWS]
    head = Markup("").join(Markup("<th>{}</th>").format(phrase.get(name)) for name in _COLUMNS)
    table = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>")
    left = len(everything) - len(shown)
    return str(
        Markup('<div style="border-left:6px solid {};padding:.2em 1em">{}{}{}</div>').format(
            Markup(edge),
            Markup("").join(_line(line, MARKS[screen.status]) for line in lines),
            table.format(head, Markup("").join(_row(row, phrase) for row in shown)) if shown else "",
            Markup("<div><small>+ {}</small></div>").format(left) if left else "",
        )
    )


def _line(line: Line, mark: str) -> Markup:
    if line.role == "headline":
        return Markup("<div><b>{} {}</b></div>").format(mark, line.text)
    weight = "600" if line.role in ("cause", "advice") else "400"
    return Markup('<div style="margin-left:{}em;font-weight:{}"><bdi>{}</bdi></div>').format(
        line.indent / 2, weight, line.text
    )


def _row(row: ReportRow, phrase: Words) -> Markup:
    numbers = [row.text(name) for name in ("rel_l2", "max_abs", "mean_abs")]
    cells = [
        _CELL.format("left", f"{MARKS[row.status]} {row.status.value}"),
        _CELL.format(
            "left", Markup('<bdi title="{}"><code>{}</code></bdi>').format(plain(row.key), plain(phrase(row.title)))
        ),
        *(_CELL.format("right", value) for value in (*numbers, times(row.times_limit))),
    ]
    return Markup("<tr>{}</tr>").format(Markup("").join(cells))
