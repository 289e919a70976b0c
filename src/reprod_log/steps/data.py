"""Data reading: length of the data set, its samples, and batches without shuffling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from reprod_log.alignment import Alignment
from reprod_log.capture import flatten, to_numpy
from reprod_log.errors import UsageError
from reprod_log.recording import Array, Key, Recording
from reprod_log.recording.entry import content_hash
from reprod_log.steps.subject import Recorded, Subject, recorded
from reprod_log.steps.values import origin, values_recording
from reprod_log.verdict import Limit

SUBJECT = Subject(
    name="data",
    title="data reading",
    words=("data", "dataset", "dataloader", "dataload"),
    limits=("max_abs:0",),
    why="the same file read by the same rule gives the same bits",
)


def record(side: Any, *, samples: int = 16, batches: int = 4) -> Recording:
    """The lengths, some samples and the first batches of one side.

    side      a data set (length and index), an iterable of batches, or both: {"dataset": …, "loader": …}
    samples   how many samples of the data set: the first, the last, and others spread evenly between
    batches   how many batches, from the first on
    """
    parts = side if isinstance(side, Mapping) and set(side) <= {"dataset", "loader"} and side else _part(side)
    entries: dict[Key, Array] = {}
    if "dataset" in parts:
        entries |= _samples(parts["dataset"], samples)
    if "loader" in parts:
        entries |= _batches(parts["loader"], batches)
    whole = content_hash(np.array([content_hash(array) for array in entries.values()], dtype="S32"))
    return values_recording(entries, provenance=origin(side, data_hash=whole))


def _part(side: Any) -> dict[str, Any]:
    if hasattr(side, "__getitem__") and hasattr(side, "__len__"):
        return {"dataset": side}
    if hasattr(side, "__iter__"):
        return {"loader": side}
    raise UsageError(f"a {type(side).__name__} is neither a data set (length and index) nor an iterable of batches")


def _samples(dataset: Any, samples: int) -> dict[Key, Array]:
    length = len(dataset)
    places = sorted({round(place) for place in np.linspace(0, length - 1, min(samples, length))}) if length else []
    entries = {Key(path="dataset.length", phase="data", step=0): np.array(length)}
    for place in places:
        entries |= _leaves(dataset[place], "dataset", place)
    return entries


def _batches(loader: Any, batches: int) -> dict[Key, Array]:
    entries: dict[Key, Array] = {}
    if hasattr(loader, "__len__"):
        entries[Key(path="loader.length", phase="data", step=0)] = np.array(len(loader))
    for place, batch in enumerate(islice(iter(loader), batches)):
        entries |= _leaves(batch, "loader", place)
    return entries


def _leaves(structure: Any, path: str, place: int) -> dict[Key, Array]:
    return {Key(path=path, phase="data", step=place, role=role): to_numpy(leaf) for role, leaf in flatten(structure)}


def compare(reference: Recorded, candidate: Recorded, *, limits: Iterable[Limit | str] = ()) -> Alignment:
    """Two recordings, bit for bit unless other limits are given."""
    return SUBJECT.compare(reference, candidate, limits=limits)


def run(
    reference: Any, candidate: Any, *, samples: int = 16, batches: int = 4, limits: Iterable[Limit | str] = ()
) -> Alignment:
    """Compare two data sets or loaders (see `record`), or two recordings."""
    sides = [
        recorded(side, lambda one: record(one, samples=samples, batches=batches)) for side in (reference, candidate)
    ]
    return compare(*sides, limits=limits)
