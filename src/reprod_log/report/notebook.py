"""How an alignment shows itself in a notebook: first screen, failures, error along depth, the first wrong tensor, the
weight map; without scripts, light or dark."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from reprod_log.alignment import Alignment
from reprod_log.measure.dtypes import Array
from reprod_log.measure.picture import Picture
from reprod_log.messages import words
from reprod_log.report.depth import depth_picture
from reprod_log.report.first_screen import FirstScreen, first_lines, side_lines
from reprod_log.report.formats.html import page
from reprod_log.report.map_view import map_headline, map_rows
from reprod_log.report.view import MARKS

_MOST_ROWS = 20
_BLUE, _ORANGE, _RED, _PURPLE = (11, 87, 184), (192, 80, 0), (179, 38, 30), (122, 46, 157)


def render(alignment: Alignment, *, language: str = "en") -> str:
    """A piece of HTML with its own styles, to stand in any page."""
    phrase, screen = words(language), FirstScreen(alignment)
    shown = screen.own_failures[:_MOST_ROWS]
    picture = None if screen.divergence is None else alignment.pictures.get(screen.divergence.key)
    weights = alignment.weight_map
    return page(
        "notebook.html.j2",
        language=language,
        passed=screen.passed,
        marks=MARKS,
        status=screen.status,
        lines=first_lines(screen, phrase) + side_lines(alignment, phrase),
        rows=shown,
        left=len(screen.rows) - len(shown),
        tensor=None if picture is None else _tensor(picture),
        depth=depth_picture(screen.rows, phrase, width=720, height=160),
        map_headline=None if weights is None else map_headline(weights),
        map_rows=map_rows(weights),
    )


@dataclass(frozen=True)
class _Image:
    """One side of a tensor, or their difference."""

    name: str
    largest: float
    source: str


def _tensor(picture: Picture) -> tuple[str, list[_Image]]:
    """The slice with the element that differs most: where it is, and reference, candidate, difference."""
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
    where = ", ".join(":" if axis in axes else str(picture.places[axis][at]) for axis, at in enumerate(worst))
    return where, [
        _Image(name, largest, _image(grid[chosen], largest, below, above))
        for name, grid, largest, below, above in grids
    ]


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
