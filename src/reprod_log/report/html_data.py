"""What an HTML page is made of: the data that its script draws from, and the parts that its template places."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from reprod_log.alignment import Alignment
from reprod_log.measure.measurement import Measurement, Worst
from reprod_log.measure.picture import Picture
from reprod_log.messages import Message, Text, Words, known_languages, message, words
from reprod_log.recording import Key
from reprod_log.report.causes import Cause, Causes
from reprod_log.report.curves import Curve
from reprod_log.report.groups import HeatMap
from reprod_log.report.view import MARKS, SEVERITY, ReportRow, both_names, in_run
from reprod_log.report.writing import number, plain, times
from reprod_log.verdict import Status

STATISTICS = ("rel_l2", "max_abs", "mean_abs", "max_rel", "mean_rel", "cosine_distance")
DERIVED = ("times_limit", "floor", "times_floor", "relative_floor", "relative_float64", "relative_own")
SIDE = ("min", "max", "mean", "std", "rms", "abs_max", "nan", "inf")
COUNTS = (
    "count", "differing", "nan_both", "nonfinite_mismatched", "beyond_limit", "limit", "rmse", "max_ulp", "mean_ulp",
)  # fmt: skip
_SAMPLES_IN_ALL = 30_000
"""Sampled elements that all entries share, up to 30 each: 200 entries stay below 2 MB, 5,000 below 10."""
_FEWEST_SAMPLES, _USUAL_SAMPLES = 4, 30
_FULL_PICTURES = 12
"""The first entries that do not pass keep all their samples: those are the ones people open."""


def page_data(
    alignment: Alignment, rows: Sequence[ReportRow], curves: Iterable[Curve], accounts: Causes
) -> dict[str, Any]:
    """What the script needs at once. Numbers are cut to what a picture can show; the JSON report has them whole."""
    columns: dict[str, list[Any]] = {name: [short(row.number(name)) for row in rows] for name in STATISTICS}
    columns |= {name: [short(getattr(row, name)) for row in rows] for name in DERIVED}
    return {
        "statuses": [{"name": one.value, "mark": MARKS[one], "passed": one.passed} for one in SEVERITY],
        "keys": [plain(row.key) for row in rows],
        "run": [row.key.run for row in rows],
        "step": [row.key.step for row in rows],
        "phase": [row.key.phase for row in rows],
        "path": [plain(row.key.path) for row in rows],
        "partners": [plain(row.partner) if row.partner is not None else "" for row in rows],
        "status": [SEVERITY.index(row.status) for row in rows],
        "inherited": _inherited(rows, accounts),
        "only_candidate": _only_candidate(alignment, rows),
        "causes": [_keys_of(one, rows) for one in accounts.causes],
        "shape": [row.shape for row in rows],
        "layer": ["" if row.compared is None else plain(row.compared.layer_type) for row in rows],
        "numbers": columns,
        "curves": [_curve(curve) for curve in curves],
    }


def entry_pages(alignment: Alignment, rows: Sequence[ReportRow]) -> dict[str, Any]:
    """What the pages of single entries need, with its sentences: most of a report, wanted when one is opened."""
    sentences = Sentences()
    details = [_detail(row, most, sentences) for row, most in zip(rows, _samples_for(rows), strict=True)]
    for row, detail in zip(rows, details, strict=True):
        if row.key in alignment.pictures:
            detail["picture"] = picture_data(alignment.pictures[row.key])
    findings = [
        [
            *(sentences.number(text) if text else None for text in (one.cause, one.evidence, one.advice)),
            one.confidence,
            [plain(key) for key in one.keys],
        ]
        for one in alignment.findings
    ]
    return {"details": details, "findings": findings, "sentences": sentences.by_language()}


def picture_data(picture: Picture) -> dict[str, Any]:
    """A picture for the script; its profiles cut to what a chart can show."""
    profiles = [
        [list(one.places), [short(value) for value in one.difference], [short(value) for value in one.reference]]
        for one in picture.profiles
    ]
    return {**picture.to_dict(), "profiles": profiles}


def packed(text: str) -> str:
    """Text as it lies in a page until it is wanted: gzip in base64, a fraction of its size."""
    return base64.b64encode(gzip.compress(text.encode(), 4, mtime=0)).decode()


def _inherited(rows: Sequence[ReportRow], accounts: Causes) -> list[int]:
    """What does not pass because of a cause before it, or although its layer is right when it runs alone."""
    alone = {row.key.in_run("") for row in rows if row.key.run == "isolated" and row.status.passed}
    found = accounts.inherited | alone
    return [row.place for row in rows if not row.status.passed and row.key in found]


def _only_candidate(alignment: Alignment, rows: Sequence[ReportRow]) -> list[int]:
    alone = {one.key for one in alignment.comparison.unmatched if one.side == "candidate"}
    return [row.place for row in rows if row.status is Status.UNMATCHED and row.key in alone]


def _keys_of(cause: Cause, rows: Sequence[ReportRow]) -> list[int]:
    keys = {row.key for row in (*cause.at, *cause.inherited)}
    return [row.place for row in rows if row.key in keys]


_MADE_BEFORE = ("advice.", "basis.", "cause.", "evidence.", "note.", "reason.", "view.", "word.", "zoom.")
"""Rows that no script fills in: a page has the few sentences that it needs of them, and they are half of a table."""


def page_words() -> dict[str, dict[str, str]]:
    """The rows that a page's script fills in itself, by language."""
    tables = {language: words(language).sentences for language in known_languages()}
    return {
        language: {id: row for id, row in table.items() if not id.startswith(_MADE_BEFORE)}
        for language, table in tables.items()
    }


def in_languages(what: Text) -> dict[str, str]:
    """The sentence in every language, by the language's code."""
    return {language: plain(words(language)(what)) for language in known_languages()}


class Sentences:
    """The sentences of one page in every language; its script knows each by a number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}
        self._fixed: dict[str, int] = {}
        """Those without arguments, by their ids: what thousands of entries rest on is one of a few."""

    def number(self, what: Text) -> int:
        fixed = what.id if isinstance(what, Message) and not what.arguments else ""
        if fixed in self._fixed:
            return self._fixed[fixed]
        found = self._numbers.setdefault(tuple(in_languages(what).values()), len(self._numbers))
        if fixed:
            self._fixed[fixed] = found
        return found

    def by_language(self) -> dict[str, list[str]]:
        """All sentences numbered so far, in their order."""
        return {language: [one[at] for one in self._numbers] for at, language in enumerate(known_languages())}


def embedded(data: dict[str, Any]) -> str:
    """JSON that nothing inside can end early: no `<` is left in it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def short(value: float | None, digits: int = 4) -> float | str | None:
    """A number with few digits; NaN and the infinities by name, which JSON cannot hold."""
    if value is None:
        return None
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e6 else rounded


def _samples_for(rows: Sequence[ReportRow]) -> Iterator[int]:
    """How many samples each row may show."""
    usual = max(_FEWEST_SAMPLES, min(_USUAL_SAMPLES, _SAMPLES_IN_ALL // max(len(rows), 1)))
    full = [row.place for row in rows if not row.status.passed][:_FULL_PICTURES]
    for row in rows:
        yield 1_000 if row.place in full else usual


def _thinned(samples: Sequence[tuple[float, float]], most: int) -> Sequence[tuple[float, float]]:
    if len(samples) <= most:
        return samples
    return [samples[round(at * (len(samples) - 1) / (most - 1))] for at in range(most)]


def _detail(row: ReportRow, samples: int, sentences: Sentences) -> dict[str, Any]:
    """The page of one entry; what is empty is left out."""
    judgement, compared = row.judgement, row.compared
    found: dict[str, Any] = {
        "reason": sentences.number(row.reason) if row.reason else None,
        "evidence": sentences.number(judgement.evidence.message),
        "checks": [
            [one.metric, short(one.value), short(one.limit), one.passed, short(one.floor)] for one in judgement.checks
        ],
    }
    if compared is not None:
        found |= {
            "dtype": row.dtype,
            "how": compared.how,
            "confidence": compared.confidence if compared.confidence < 1 else None,
            "view": None if compared.view is None else sentences.number(compared.view),
            "samples": [short(value, 9) for pair in _thinned(compared.samples, samples) for value in pair],
            "worst": [_element(one) for one in compared.worst_elements],
        }
    if row.measurement is not None:
        found |= _measured(row.measurement, sentences)
    return {name: value for name, value in found.items() if value not in ("", None, [], {})}


def _measured(measured: Measurement, sentences: Sentences) -> dict[str, Any]:
    return {
        "octaves": [part for octave in measured.octaves for part in octave],
        "sides": [[short(getattr(side, name)) for name in SIDE] for side in (measured.reference, measured.candidate)],
        "counts": [short(getattr(measured, name), 6) for name in COUNTS],
        "notes": [sentences.number(note) for note in measured.notes],
    }


def _element(one: Worst) -> list[Any]:
    values = [value if isinstance(value, (int, float)) else str(value) for value in (one.reference, one.candidate)]
    shown = [short(value, 9) if isinstance(value, float) else plain(str(value)) for value in values]
    return ["[" + ", ".join(map(str, one.index)) + "]", *shown]


def _curve(curve: Curve) -> dict[str, Any]:
    points = curve.points
    return {
        "name": plain(in_run(curve.run, curve.name)),
        "kind": curve.kind,
        "step": [point.step for point in points],
        "reference": [short(point.reference, 9) for point in points],
        "candidate": [short(point.candidate, 9) for point in points],
        "difference": [short(point.difference) for point in points],
        "floor": [short(point.floor) for point in points],
        "limit": [short(point.limit) for point in points],
        "row": [point.row.place for point in points],
    }


MOST_CELLS = 20_000


COLUMNS = (
    "status", "entry", "rel_l2", "times_limit", "times_floor", "relative_own", "max_abs", "mean_abs", "max_rel",
    "cosine_distance", "shape",
)  # fmt: skip
"""Of the table of entries, what decides first."""


def entry_columns(rows: Sequence[ReportRow]) -> list[str]:
    """The columns of the table of entries; one that would be empty is left out."""
    empty = set()
    if not any(row.floor is not None for row in rows):
        empty.add("times_floor")
    if not any(row.own is not None for row in rows):
        empty.add("relative_own")
    return [name for name in COLUMNS if name not in empty]


@dataclass(frozen=True)
class HtmlParts:
    """What the template calls; every text has its id or number, so that the script can show it in another language."""

    words: Words
    sentences: Sentences

    def t(self, id: str) -> Markup:
        """A sentence without values."""
        return Markup('<span data-t="{}">{}</span>').format(id, self.words.get(id))

    def say(self, what: Text) -> Markup:
        """A sentence with values."""
        return Markup('<bdi data-say="{}">{}</bdi>').format(self.sentences.number(what), plain(self.words(what)))

    def data(self, data: dict[str, Any]) -> Markup:
        """What the script works with; the last thing on a page, for it has the sentences of all that stands before."""
        return Markup(embedded({**data, "words": page_words(), "sentences": self.sentences.by_language()}))

    def sentence(self, id: str, **values: object) -> Markup:
        return self.say(message(id, **values))

    def attribute(self, name: str, id: str) -> Markup:
        """An attribute in the page's language, e.g. a placeholder."""
        return Markup('{}="{}" data-t-{}="{}"').format(Markup(name), self.words.get(id), Markup(name), id)

    def code(self, name: str | Key) -> Markup:
        """A name as text: it may not change the direction of what stands around it."""
        return Markup("<bdi><code>{}</code></bdi>").format(plain(name))

    def entry(self, row: ReportRow) -> Markup:
        """An entry in words; its keys, which commands take, show when one points at it."""
        keys = both_names(plain(row.key), plain(row.partner or row.key))
        return Markup('<bdi title="{}">{}</bdi>').format(keys, plain(self.words(row.title)))

    def line(self, place: str) -> Markup:
        """`file:line` by its short name; a link that editors open, where the file is on this machine."""
        file, _, line = place.rpartition(":")
        text = Markup("<code>{}:{}</code>").format(plain(Path(file).name), line)
        path = Path(file).absolute()
        if not path.is_file():
            return Markup('<bdi title="{}">{}</bdi>').format(plain(place), text)
        return Markup('<a title="{}" href="vscode://file{}:{}">{}</a>').format(
            plain(place), quote(path.as_posix()), line, text
        )

    def number(self, value: float | None) -> str:
        return number(value)

    def times(self, value: float | None) -> str:
        return times(value)

    def table_row(self, row: ReportRow, columns: Sequence[str]) -> Markup:
        """A line of the table of entries. Closing tags that HTML does not need are left out: there may be thousands."""
        cells = {
            "status": f"{MARKS[row.status]} {row.status.value}",
            "entry": self.entry(row),
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
    partners = {layer: row.partner.path for (layer, _), row in heat.cells.items() if row.partner is not None}
    lines = tuple(
        (
            plain(both_names(layer, partners.get(layer, layer))),
            Markup("").join(_cell(heat.cells.get((layer, step))) for step in heat.steps),
        )
        for layer in shown
    )
    return HeatTable(heat.phase, heat.steps, lines, len(heat.layers) - len(shown), len(heat.layers))


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
