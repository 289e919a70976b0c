"""The pages of the server: the list of what there is, and one recording as it grows."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from reprod_log.report.formats.html import bokeh_scripts
from reprod_log.report.html_data import page_words
from reprod_log.report.page import embedded, page, scripts
from reprod_log.report.serve.listing import Listing
from reprod_log.report.view import MARKS, SEVERITY

_SCRIPTS = ("script/words.js", "script/charts.js", "serve/serve.js")


def index(listing: Listing) -> str:
    """The list of alignments and recordings, and the choice of two recordings to compare."""
    items = listing.items()
    return _page(
        "serve/index.html.j2",
        folder=listing.folder.name,
        alignments=[one for one in items if one.kind == "alignment"],
        recordings=[one for one in items if one.kind == "recording"],
    )


def recording(name: str, listing: Listing, other: str) -> str:
    """One recording, live; `other` is the name of a second one to draw beside it."""
    names = [one.name for one in listing.items() if one.kind == "recording" and one.name != name]
    return _page("serve/recording.html.j2", name=name, others=names, other=other if other in names else "")


def problem(text: str) -> str:
    """A page that says what is wrong."""
    return _page("serve/problem.html.j2", text=text)


def script(path: str) -> str | None:
    """The script at an address; None if there is none."""
    return _scripts().get(path)


@lru_cache(maxsize=1)
def _scripts() -> dict[str, str]:
    library, api = bokeh_scripts()
    return {"/bokeh.js": library, "/bokeh-api.js": api, "/serve.js": scripts(*_SCRIPTS)}


def _page(template: str, **values: Any) -> str:
    data = {
        "words": page_words(),
        "statuses": [{"name": one.value, "mark": MARKS[one], "passed": one.passed} for one in SEVERITY],
        "name": values.get("name", ""),
    }
    return page(template, data=embedded(data), **values)
