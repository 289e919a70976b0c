"""Parts of the HTML report that are not plain template text: sentences that can change their language, the heat map."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from reprod_log.messages import Text, Words, message
from reprod_log.recording import Key
from reprod_log.report.groups import HeatMap
from reprod_log.report.html_data import BY_TEXT, english, said
from reprod_log.report.plain import number, plain, times
from reprod_log.report.view import MARKS, ReportRow

MOST_CELLS = 20_000


def entry_columns(rows: Sequence[ReportRow]) -> list[str]:
    """The columns of the table of entries, what decides first; one that would be empty is left out."""
    known = {
        "times_floor": any(row.floor is not None for row in rows),
        "relative_own": any(row.own is not None for row in rows),
    }
    calibrated = [name for name, there in known.items() if there]
    errors = ["max_abs", "mean_abs", "max_rel", "cosine_distance"]
    return ["status", "entry", "rel_l2", "times_limit", *calibrated, *errors, "shape"]


@dataclass(frozen=True)
class HtmlParts:
    """What the template calls; every text carries its id, so that the script can say it in another language."""

    words: Words

    def t(self, id: str) -> Markup:
        """A sentence without values."""
        return Markup('<span data-t="{}">{}</span>').format(id, self.words.get(id))

    def say(self, what: Text) -> Markup:
        """A sentence with values, or one that the page knows by its English text."""
        if isinstance(what, (str, tuple)) or what.id.startswith(BY_TEXT):
            return Markup('<bdi data-text="{}">{}</bdi>').format(english(what), plain(self.words(what)))
        values = json.dumps(said(what), ensure_ascii=False)
        return Markup('<span data-say="{}">{}</span>').format(values, plain(self.words(what)))

    def sentence(self, id: str, **values: object) -> Markup:
        return self.say(message(id, **values))

    def attribute(self, name: str, id: str) -> Markup:
        """An attribute in the page's language, e.g. a placeholder."""
        return Markup('{}="{}" data-t-{}="{}"').format(Markup(name), self.words.get(id), Markup(name), id)

    def code(self, name: str | Key) -> Markup:
        """A name as text: it may not change the direction of what stands around it."""
        return Markup("<bdi><code>{}</code></bdi>").format(plain(name))

    def number(self, value: float | None) -> str:
        return number(value)

    def times(self, value: float | None) -> str:
        return times(value)

    def table_row(self, row: ReportRow, columns: Sequence[str]) -> Markup:
        """A line of the table of entries. Closing tags that HTML does not need are left out: there may be thousands."""
        cells = {
            "status": f"{MARKS[row.status]} {row.status.value}",
            "entry": f"<bdi>{escape(plain(row.key))}</bdi>",
            "times_limit": times(row.times_limit),
            "times_floor": times(row.times_floor),
            "relative_own": number(row.relative_own),
            "shape": escape(row.shape),
        }
        line = (cells[name] if name in cells else row.text(name) for name in columns)
        return Markup(f"<tr id=r{row.place} class={row.status.value}><td>{'<td>'.join(line)}\n")


@dataclass(frozen=True)
class HeatTable:
    """A heat map ready to be written down."""

    title: str
    steps: tuple[int, ...]
    lines: tuple[tuple[str, Markup], ...]
    """A layer's name and its cells."""
    left_out: int
    total: int


def heat_table(heat: HeatMap) -> HeatTable:
    """The map as cells of text on colour; layers that pass give way when there are too many cells."""
    shown = heat.layers
    most = max(1, MOST_CELLS // max(len(heat.steps), 1))
    if len(shown) > most:

        def passes(layer: str) -> bool:
            return all(heat.cells[layer, step].status.passed for step in heat.steps if (layer, step) in heat.cells)

        kept = set(sorted(shown, key=passes)[:most])
        shown = tuple(layer for layer in shown if layer in kept)
    lines = tuple(
        (plain(layer), Markup("").join(_cell(heat.cells.get((layer, step))) for step in heat.steps)) for layer in shown
    )
    title = f"{heat.run}@{heat.phase}" if heat.run else heat.phase
    return HeatTable(title, heat.steps, lines, len(heat.layers) - len(shown), len(heat.layers))


def _cell(row: ReportRow | None) -> Markup:
    if row is None:
        return Markup("<td>")
    value = row.number("rel_l2")
    wrong = "" if row.status.passed else " x"
    mark = "" if row.status.passed else MARKS[row.status]
    if value is None:
        return Markup(f'<td class="h{wrong}" data-e={row.place}>{mark}')
    if value == 0:
        return Markup(f'<td class="h h0{wrong}" data-e={row.place}>={mark}')
    if not math.isfinite(value):
        return Markup(f'<td class="h h9{wrong}" data-e={row.place}>{value:g}{mark}')
    exponent = math.floor(math.log10(value))
    # Nine shades from 1e-9 and below to 1 and above; the warm ones are kept for what does not pass.
    shade = min(4 if row.status.passed else 9, max(1, exponent + 10))
    return Markup(f'<td class="h h{shade}{wrong}" data-e={row.place}>{str(exponent).replace("-", "−")}{mark}')
