"""The pages of the server: the list of what there is, and one recording as it grows."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.errors import ReprodLogError
from reprod_log.measure.comparison import Compared, measure_pair
from reprod_log.measure.picture import picture_of
from reprod_log.messages import message
from reprod_log.pairing import Pair, match
from reprod_log.ranks import open_sides
from reprod_log.recording import Entry, Recording
from reprod_log.recording.stores import load
from reprod_log.report.curves import named_steps
from reprod_log.report.facts import origin_lines
from reprod_log.report.formats import html
from reprod_log.report.formats.html import bokeh_scripts, page, scripts
from reprod_log.report.html_data import in_languages, picture_data, short
from reprod_log.report.serve.listing import Listing
from reprod_log.report.view import MARKS, SEVERITY
from reprod_log.report.writing import plain

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
        "statuses": [{"name": one.value, "mark": MARKS[one], "passed": one.passed} for one in SEVERITY],
        "name": values.get("name", ""),
    }
    return page(template, data=data, **values)


_MOST_KEYS = 500
_MOST_POINTS = 5_000
_NO_NUMBERS = ("str", "object", "complex", "bytes", "datetime", "timedelta")


def live_data(path: Path, other: Path | None = None) -> dict[str, Any]:
    """What the page of a recording shows; `other` adds a second recording's values to the same curves."""
    recording = load(path)
    curves = curves_of(recording)
    beside = {} if other is None else curves_of(load(other))
    return {
        "entries": len(recording),
        "complete": recording.complete,
        "steps": [recording.steps[0], recording.steps[-1]] if recording.steps else [],
        "notes": [in_languages(note) for note in recording.notes],
        "provenance": {plain(name): plain(text) for name, text in origin_lines(recording.provenance)},
        "curves": [
            {"name": plain(name), "values": _points(values), "other": _points(beside.get(name, {}))}
            for name, values in curves.items()
        ],
        "keys": [[plain(str(one.key)), plain(one.dtype), list(one.shape)] for one in recording.entries[-_MOST_KEYS:]],
        "left_out": max(0, len(recording) - _MOST_KEYS),
    }


_SEEN_AT_ONCE = 1 << 16
"""Elements of a tensor that a page is given to draw."""


def tensor_data(alignment: Alignment, entry: str, listing: Listing) -> dict[str, Any]:
    """The picture of the entry with that number, drawn from the recordings; else why there is none."""
    rows = html.shown_rows(alignment)
    compared = rows[int(entry)].compared if entry.isdecimal() and int(entry) < len(rows) else None
    sources = (alignment.reference.source, alignment.candidate.source)
    reference, candidate = map(listing.recording_at, sources)
    if compared is None or reference is None or candidate is None:
        return {"why": in_languages(message("tensor.gone"))}
    pair = _pair(compared, *open_sides(reference, candidate))
    if pair is None or _differs_now(compared, pair):
        return {"why": in_languages(message("tensor.changed"))}
    worst = compared.worst_elements
    picture = picture_of(pair, worst=worst[0].index if worst else (), most=_SEEN_AT_ONCE)
    return {"why": in_languages(message("entry.none"))} if picture is None else {"picture": picture_data(picture)}


def _pair(compared: Compared, reference: Recording, candidate: Recording) -> Pair | None:
    """The two entries; how one is turned into the other's layout is found again."""
    if compared.view is not None:
        pairs = match(reference, candidate).pairs
        keys = (compared.key, compared.candidate_key)
        return next((one for one in pairs if (one.reference.key, one.candidate.key) == keys), None)
    if compared.key not in reference or compared.candidate_key not in candidate:
        return None
    return Pair(reference[compared.key], candidate[compared.candidate_key])


def _differs_now(compared: Compared, pair: Pair) -> bool:
    """Whether the recordings are others than those that were compared: the largest difference tells."""
    before, now = compared.measurement, measure_pair(pair).measurement
    return before is None or now is None or str(before.max_abs) != str(now.max_abs)


def curves_of(recording: Recording) -> dict[str, dict[int, float]]:
    """The single numbers that come back at several steps, by name: step to value."""
    scalars = [one for one in recording.entries if _is_number(one)]
    found: dict[str, dict[int, float]] = {}
    for name, _, step, place in named_steps([one.key for one in scalars]):
        found.setdefault(name, {})[step] = _value(scalars[place])
    return {name: values for name, values in found.items() if len(values) > 1}


def _is_number(entry: Entry) -> bool:
    size = 1
    for length in entry.shape:
        size *= length
    return size == 1 and entry.detail == "full" and not entry.dtype.startswith(_NO_NUMBERS)


def _value(entry: Entry) -> float:
    try:
        return float(entry.array().reshape(()).astype("float64"))
    except (ReprodLogError, OSError):
        # A shard may vanish between listing and reading; the next look finds what is there then.
        return float("nan")


def _points(values: dict[int, float]) -> list[list[Any]]:
    chosen = sorted(values)
    every = max(1, len(chosen) // _MOST_POINTS)
    return [[step, short(values[step], 9)] for step in chosen[::every]]
