"""How an alignment shows itself in a notebook: first screen, failures, error along depth, the first wrong tensor, the
weight map; without scripts, light or dark."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup

from reprod_log.alignment import Alignment
from reprod_log.measure.dtypes import Array
from reprod_log.measure.picture import Picture
from reprod_log.messages import Words, words
from reprod_log.report.depth import depth_picture
from reprod_log.report.first_screen import Line, first_lines, first_screen, side_lines
from reprod_log.report.map_view import map_headline, map_rows
from reprod_log.report.view import MARKS, ReportRow, rows
from reprod_log.report.writing import number, plain, times

_MOST_ROWS = 20
_COLUMNS = ("status", "entry", "rel_l2", "max_abs", "mean_abs", "times_limit")
_BLUE, _ORANGE, _RED, _PURPLE = (11, 87, 184), (192, 80, 0), (179, 38, 30), (122, 46, 157)


def render(alignment: Alignment, *, language: str = "en") -> str:
    """A piece of HTML with its own styles, to stand in any page."""
    phrase = words(language)
    everything = rows(alignment)
    screen = first_screen(alignment, all_rows=everything)
    edge = "#1a7f37" if screen.passed else "#cf222e"
    lines = first_lines(screen, phrase) + side_lines(alignment, phrase)
    shown = screen.own_failures(everything)[:_MOST_ROWS]
    left = len(everything) - len(shown)
    picture = None if screen.divergence is None else alignment.pictures.get(screen.divergence.key)
    depth = depth_picture(everything, phrase, width=720, height=160)
    parts = [
        *(_line(line, MARKS[screen.status]) for line in lines),
        _table([phrase.get(name) for name in _COLUMNS], (_row(row, phrase) for row in shown)) if shown else "",
        Markup("<div><small>+ {}</small></div>").format(left) if left else "",
        _tensor(picture, phrase) if picture is not None else "",
        _folded(phrase.get("section.depth"), depth) if depth else "",
        _map(alignment, phrase),
    ]
    return str(
        Markup('<div style="border-left:6px solid {};padding:.2em 1em">{}</div>').format(
            Markup(edge), Markup("").join(parts)
        )
    )


def _line(line: Line, mark: str) -> Markup:
    if line.role == "headline":
        return Markup("<div><b>{} {}</b></div>").format(mark, line.text)
    weight = "600" if line.role in ("cause", "advice") else "400"
    return Markup('<div style="margin-left:{}em;font-weight:{}"><bdi>{}</bdi></div>').format(
        line.indent / 2, weight, line.text
    )


def _table(heads: Sequence[str], lines: Iterable[Sequence[str | Markup]]) -> Markup:
    """Text on the left, numbers on the right, as pandas has it."""

    def cell(value: str | Markup) -> Markup:
        side = "right" if not isinstance(value, Markup) and value[:1] in "0123456789.≈–" else "left"
        return Markup('<td style="text-align:{}">{}</td>').format(side, value)

    head = Markup("").join(Markup("<th>{}</th>").format(one) for one in heads)
    body = Markup("").join(Markup("<tr>{}</tr>").format(Markup("").join(map(cell, line))) for line in lines)
    return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(head, body)


def _folded(title: str, inside: Markup) -> Markup:
    return Markup("<details><summary>{}</summary>{}</details>").format(title, inside)


def _row(row: ReportRow, phrase: Words) -> list[str | Markup]:
    name = Markup('<bdi title="{}"><code>{}</code></bdi>').format(plain(row.key), plain(phrase(row.title)))
    numbers = [row.text(name) for name in ("rel_l2", "max_abs", "mean_abs")]
    return [Markup("{} {}").format(MARKS[row.status], row.status.value), name, *numbers, times(row.times_limit)]


def _map(alignment: Alignment, phrase: Words) -> Markup:
    weights = alignment.weight_map
    if weights is None:
        return Markup("")
    heads = [phrase.get(name) for name in ("candidate", "shape", "reference", "map.transform", "map.evidence")]
    lines = (
        [Markup.escape(plain(part)) for part in (row.target, row.shape, ", ".join(row.sources))]
        + [Markup.escape(phrase(row.steps)), Markup.escape(phrase(row.evidence))]
        for row in map_rows(weights)
    )
    return _folded(plain(phrase(map_headline(weights))), _table(heads, lines))


def _tensor(picture: Picture, phrase: Words) -> Markup:
    """The slice with the element that differs most: reference, candidate, difference."""
    apart = np.abs(np.where(np.isnan(picture.difference), np.inf, picture.difference))
    worst = np.unravel_index(int(np.argmax(apart)), apart.shape)
    axes = [axis for axis, length in enumerate(apart.shape) if length > 1][-2:]
    chosen = tuple(slice(None) if axis in axes else int(at) for axis, at in enumerate(worst))
    size = max(_largest(picture.reference), _largest(picture.candidate))
    grids = (
        ("reference", picture.reference, size, _BLUE, _ORANGE),
        ("candidate", picture.candidate, size, _BLUE, _ORANGE),
        ("difference", picture.difference, _largest(picture.difference), _PURPLE, _RED),
    )
    images = Markup("").join(
        Markup(
            '<figure style="display:inline-block;margin:.3em 1em .3em 0">{} <small>±{}</small><br>'
            '<img alt="{}" src="{}" style="image-rendering:pixelated;width:200px;min-height:12px"></figure>'
        ).format(phrase.get(name), number(largest), phrase.get(name), _image(grid[chosen], largest, below, above))
        for name, grid, largest, below, above in grids
    )
    where = ", ".join(":" if axis in axes else str(picture.places[axis][at]) for axis, at in enumerate(worst))
    return Markup("<div>{} <code>[{}]</code><br>{}</div>").format(phrase.get("tensor"), where, images)


def _largest(grid: Array) -> float:
    finite = np.abs(grid[np.isfinite(grid)])
    return float(finite.max()) if finite.size else 0.0


def _image(grid: Array, largest: float, below: tuple[int, ...], above: tuple[int, ...]) -> str:
    """A PNG in which white is zero and what is not finite is black."""
    grid = np.atleast_2d(grid).astype(np.float64)
    share = np.abs(grid) / largest if largest else np.zeros_like(grid)
    ends = np.where((grid < 0)[..., None], below, above)
    with np.errstate(invalid="ignore"):
        pixels = np.where(np.isfinite(grid)[..., None], 255 + (ends - 255.0) * share[..., None], 0).astype(np.uint8)
    height, width = grid.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()
