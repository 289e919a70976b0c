"""Training: the losses along a training and the score at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from reprod_log.alignment import Alignment
from reprod_log.capture import to_numpy
from reprod_log.errors import UsageError
from reprod_log.experiments.runs import batches_of
from reprod_log.recording import Array, Key, Recording, entry_of
from reprod_log.steps.passes import FLOAT64, record_passes
from reprod_log.steps.subject import Recorded, Subject, has_float64, load_side, recorded
from reprod_log.steps.trainer import Trainer
from reprod_log.steps.values import given, named, origin, values_recording
from reprod_log.verdict import Limit

SUBJECT = Subject(
    name="training",
    title="training accuracy",
    words=("train", "training"),
    limits=("mean_abs:0.0015",),
    why="the guides' tolerance for a score in [0, 1] after independent training runs",
)


def record(side: Any, *, inputs: Any = None, targets: Any = None, float64: bool = True) -> Recording:
    """The losses and rates of every step and the score at the end.

    side      a Trainer, trained on `inputs` and `targets` (lists with one batch per step), in its own precision and in
              float64, with `evaluate` called at the end; or the results of a training as values: a score or several by
              name, sequences being losses by step; or a function that trains and gives them
    """
    if not isinstance(side, Trainer):
        return values_recording(_results(given(side)), provenance=origin(side))
    if not isinstance(inputs, list) or not inputs:
        raise UsageError("training a Trainer takes inputs (and targets) as lists with one batch per step")
    batches = batches_of(inputs, targets, len(inputs))
    scores: list[dict[str, Array]] = []
    program = replace(side, step=_evaluating(side, len(batches), scores), evaluate=None)
    recording = record_passes(program, batches, float64=float64, phases=("loss", "lr"))
    last = len(batches) - 1
    entries = [
        entry_of(Key(name, "metric", last, run=run), score)
        for run, found in zip(("", FLOAT64), scores, strict=False)
        for name, score in found.items()
    ]
    return replace(recording, entries=(*recording.entries, *entries))


def _evaluating(side: Trainer, steps: int, scores: list[dict[str, Array]]) -> Callable[..., None]:
    """An iteration that evaluates the model after the last of `steps`."""
    done = 0

    def step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        nonlocal done
        side.iterate(model, optimizer, inputs, targets)
        done += 1
        if done % steps == 0 and side.evaluate is not None:
            scores.append(dict(named(side.evaluate(model), "score")))

    return step


def _results(values: Any) -> dict[Key, Array]:
    """Scores as metrics of the last step, sequences as losses by step."""
    results = values if isinstance(values, Mapping) else {"score": values}
    series = {name: to_numpy(value) for name, value in results.items() if np.ndim(value) == 1}
    last = max((len(one) for one in series.values()), default=1) - 1
    found = {Key(name, "loss", step): np.array(value) for name, one in series.items() for step, value in enumerate(one)}
    scores = {name: value for name, value in results.items() if name not in series}
    if scores:
        found |= {Key(name, "metric", last): array for name, array in named(scores, "score")}
    return found


def compare(
    reference: Recorded,
    candidate: Recorded,
    *,
    tolerance: float = 0.0015,
    trajectory: float = 0.05,
    limits: Iterable[Limit | str] = (),
) -> Alignment:
    """Two recordings: by the calibrated rule when both were also trained in float64, else by tolerances.

    tolerance    of scores, absolute
    trajectory   of losses, relative: two float32 trainings part by rounding alone, the further the longer they are
    """
    reference, candidate = load_side(reference), load_side(candidate)
    limits = tuple(limits)
    if not limits and not has_float64(reference):
        limits = (
            Limit("max_abs", tolerance, reason="tolerance of scores"),
            Limit("max_rel", trajectory, keys="*/loss/*", reason="tolerance of losses along the training"),
            Limit("max_rel", 1e-9, keys="*/lr/*", reason="rates are Python floats"),
        )
    return SUBJECT.compare(reference, candidate, limits=limits)


def run(
    reference: Any,
    candidate: Any,
    *,
    inputs: Any = None,
    targets: Any = None,
    tolerance: float = 0.0015,
    trajectory: float = 0.05,
    limits: Iterable[Limit | str] = (),
) -> Alignment:
    """Train two sides (see `record`), or compare the results of two trainings, or two recordings of them."""
    sides = [recorded(side, lambda one: record(one, inputs=inputs, targets=targets)) for side in (reference, candidate)]
    return compare(*sides, tolerance=tolerance, trajectory=trajectory, limits=limits)
