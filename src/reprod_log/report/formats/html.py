"""HTML: one file with charts, tables and a page per entry, that opens from disk and asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.errors import MissingPackage
from reprod_log.messages import words
from reprod_log.recording.files import replacing
from reprod_log.report import USUAL, Options
from reprod_log.report.curves import curves
from reprod_log.report.depth import depth_picture
from reprod_log.report.facts import coverage, policy_rules, provenance_facts
from reprod_log.report.first_screen import FirstScreen
from reprod_log.report.groups import groups, heat_maps, module_tree, share
from reprod_log.report.html_data import (
    HtmlParts,
    Sentences,
    embedded,
    entry_columns,
    entry_pages,
    heat_table,
    packed,
    page_data,
)
from reprod_log.report.map_view import map_headline, map_remarks, map_rows
from reprod_log.report.view import MARKS, ReportRow, in_run, remarks, rows
from reprod_log.report.writing import plain
from reprod_log.version import __version__

SUFFIXES = (".html", ".htm")

MOST_ROWS = 6_000
"""Entries with a row and a page of their own; a file of more would be slow to open. What does not pass goes first."""
_LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")
_SHARED = "report.js"
SHARED_POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""Of pages that share their scripts: those beside them run, and nothing else."""
_SCRIPTS = tuple(
    f"script/{name}.js" for name in ("words", "charts", "table", "tree", "graph", "tensor", "entry", "page")
)


def render(alignment: Alignment, options: Options = USUAL) -> str:
    """The whole page. The short and the full form are the same: the reader folds and filters."""
    screen = FirstScreen(alignment)
    everything = screen.rows
    shown = _shown(everything)
    place = {row.key: row.place for row in shown}
    found_curves = curves(shown)
    columns = entry_columns(shown)
    data = page_data(alignment, shown, found_curves, screen.accounts) | {"columns": columns}
    data["first"] = place.get(screen.divergence.key) if screen.divergence else None
    data["tensors"] = options.tensors
    shared = options.assets
    if shared:
        data["scripts"] = [f"{shared}/{name}" for name in _LIBRARY]
    script = scripts(*_SCRIPTS)
    return page(
        "report.html.j2",
        language=options.language,
        alignment=alignment,
        screen=screen,
        rows=shown,
        total=len(everything),
        place=place,
        columns=columns,
        groups=groups(everything),
        curves=found_curves,
        still=depth_picture(shown, words(options.language), width=900, height=240),
        heat_maps=[heat_table(one) for one in heat_maps(shown)],
        tree=module_tree(shown),
        open_paths=_open_paths(screen.divergence),
        map_rows=map_rows(alignment.weight_map),
        map_headline=None if alignment.weight_map is None else map_headline(alignment.weight_map),
        map_remarks=() if alignment.weight_map is None else map_remarks(alignment.weight_map),
        facts=provenance_facts(alignment),
        rules=policy_rules(alignment),
        coverage=coverage(alignment, everything),
        remarks=remarks(alignment),
        marks=MARKS,
        version=__version__,
        data=data,
        entry_pages=packed(embedded(entry_pages(alignment, shown))),
        library=() if shared else packed_library(),
        script="" if shared else script,
        assets=shared,
        content_policy=SHARED_POLICY if shared else content_policy([*bokeh_scripts(), script], asks=options.tensors),
    )


def write_assets(folder: Path) -> None:
    """The scripts that the pages of one folder share."""
    for name, text in zip((*_LIBRARY, _SHARED), (*bokeh_scripts(), scripts(*_SCRIPTS)), strict=True):
        with replacing(folder / name) as file:
            file.write(text.encode())


def shown_rows(alignment: Alignment) -> tuple[ReportRow, ...]:
    """The rows by the numbers that their pages have."""
    return _shown(rows(alignment))


def _shown(everything: tuple[ReportRow, ...]) -> tuple[ReportRow, ...]:
    """At most MOST_ROWS rows in their order, numbered again; passing ones give way first."""
    if len(everything) <= MOST_ROWS:
        return everything
    kept = sorted(everything, key=lambda row: (row.status.passed, row.place))[:MOST_ROWS]
    return tuple(replace(row, place=place) for place, row in enumerate(sorted(kept, key=lambda row: row.place)))


def _open_paths(divergence: ReportRow | None) -> frozenset[str]:
    """The modules around the first divergence, whose branches are open when the page is."""
    if divergence is None:
        return frozenset()
    parts = divergence.key.path.split(".")
    return frozenset(".".join(parts[:length]) for length in range(1, len(parts) + 1))


@lru_cache(maxsize=1)
def packed_library() -> tuple[str, ...]:
    """The library's script as it lies in the page, a third of its size."""
    return tuple(map(packed, bokeh_scripts()))


def bokeh_scripts() -> list[str]:
    """The charting library's own script, from its installed package."""
    # Found, not imported: importing it takes a second and changes the program's warnings.
    package = find_spec("bokeh")
    if package is None or package.origin is None:
        raise MissingPackage("The charts of the HTML report need bokeh: pip install bokeh.")
    folder = Path(package.origin).parent / "server" / "static" / "js"
    return [(folder / name).read_text(encoding="utf-8") for name in _LIBRARY]


TEMPLATES = Path(__file__).parents[1] / "templates"


def page(template: str, *, language: str = "en", **values: Any) -> str:
    """The template filled in: autoescaped, with the report's style (`style`) and sentences (`p`) at hand."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"plain": plain, "share": share, "in_run": in_run}
    return environment.get_template(template).render(
        p=HtmlParts(words(language), Sentences()),
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
        **values,
    )


def scripts(*names: str) -> str:
    """Our own scripts of these names (paths below templates), one after the other."""
    return "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names)


def content_policy(scripts: list[str], *, asks: str = "") -> str:
    """What the browser may do with the page: run these very scripts, nothing else, and fetch nothing at all.

    A page that a server shows may ask that server for tensors.
    """
    connect = "connect-src 'self'; " if asks else ""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; {connect}style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
