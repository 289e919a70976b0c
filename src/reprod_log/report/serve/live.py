"""A recording as it is now: its curves, its entries, where it came from; for one side or two beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprod_log.errors import ReprodLogError
from reprod_log.recording import Entry, Recording
from reprod_log.recording.stores import load
from reprod_log.report.curves import named_steps
from reprod_log.report.facts import origin_lines
from reprod_log.report.html_data import short
from reprod_log.report.plain import plain

_MOST_KEYS = 500
_MOST_POINTS = 5_000


def live_data(path: Path, other: Path | None = None) -> dict[str, Any]:
    """What the page of a recording shows; `other` adds a second recording's values to the same curves."""
    recording = load(path)
    curves = curves_of(recording)
    beside = {} if other is None else curves_of(load(other))
    return {
        "entries": len(recording),
        "complete": recording.complete,
        "steps": [recording.steps[0], recording.steps[-1]] if recording.steps else [],
        "notes": [plain(str(note)) for note in recording.notes],
        "provenance": {plain(name): plain(text) for name, text in origin_lines(recording.provenance)},
        "curves": [
            {"name": plain(name), "values": _points(values), "other": _points(beside.get(name, {}))}
            for name, values in curves.items()
        ],
        "keys": [[plain(str(one.key)), plain(one.dtype), list(one.shape)] for one in recording.entries[-_MOST_KEYS:]],
        "left_out": max(0, len(recording) - _MOST_KEYS),
    }


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
    return size == 1 and entry.detail == "full" and not entry.dtype.startswith(("str", "object", "complex"))


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
