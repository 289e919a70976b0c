"""Metric: the same predictions give the same score."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.recording import Key, Recording
from reprod_log.steps.subject import Recorded, Subject, recorded
from reprod_log.steps.values import given, named, origin, values_recording
from reprod_log.verdict import Limit

SUBJECT = Subject(
    name="metric",
    title="metric",
    words=("metric", "metrics", "eval", "acc", "val"),
    limits=("mean_abs:1e-6",),
    why="the guides' threshold",
)


def record(side: Any, *, arguments: tuple[Any, ...] = ()) -> Recording:
    """The scores of one side.

    side   a score, several by name, or a function that gives them; called with `arguments` (the same numpy arrays on
           both sides, e.g. predictions and labels), which it turns into its own tensors
    """
    scores = named(given(side, arguments), "metric")
    return values_recording(
        {Key(path=name, phase="metric", step=0): array for name, array in scores}, provenance=origin(side)
    )


def compare(reference: Recorded, candidate: Recorded, *, limits: Iterable[Limit | str] = ()) -> Alignment:
    """Two recordings of scores, by the guides' limit or the given ones."""
    return SUBJECT.compare(reference, candidate, limits=limits)


def run(
    reference: Any, candidate: Any, *, arguments: tuple[Any, ...] = (), limits: Iterable[Limit | str] = ()
) -> Alignment:
    """Compare the scores of two functions (see `record`), two sets of values, or two recordings."""
    sides = [recorded(side, lambda one: record(one, arguments=arguments)) for side in (reference, candidate)]
    return compare(*sides, limits=limits)
