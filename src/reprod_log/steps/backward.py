"""Backward pass: losses, gradients and updates of several iterations from equal weights and data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.alignment.models import align_models
from reprod_log.errors import UsageError
from reprod_log.experiments.runs import batches_of
from reprod_log.recording import Recording
from reprod_log.steps.passes import record_passes
from reprod_log.steps.subject import Recorded, Subject, is_recorded
from reprod_log.steps.trainer import Trainer
from reprod_log.verdict import Limit

SUBJECT = Subject(
    name="backward",
    title="backward pass",
    words=("bp", "backward", "backprop", "grad", "gradient", "gradients"),
    limits=("mean_abs:1e-6",),
    why="the guides' threshold",
)

PHASES = ("data", "forward", "loss", "backward", "gradient", "clip", "lr", "update", "parameter", "buffer")
"""All but what the optimizer keeps, which shows in its next update."""


def record(
    side: Trainer,
    *,
    inputs: Any,
    targets: Any = None,
    steps: int = 5,
    detailed: int = 2,
    phases: Sequence[str] = PHASES,
    float64: bool = True,
) -> Recording:
    """Losses of all `steps`, gradients and updates of the first `detailed`, layers of the first; and all in float64.

    inputs, targets   one batch for every step, or a list with one per step
    detailed          2 shows momentum, which the first update does not
    phases            what is kept of the detailed steps; a very large model may have to do without forward and backward
    """
    _check(side)
    batches = batches_of(inputs, targets, steps)
    return record_passes(side, batches, float64=float64, phases=phases, detailed=max(detailed, 1))


def compare(reference: Recorded, candidate: Recorded, *, limits: Iterable[Limit | str] = ()) -> Alignment:
    """Two recordings, by the calibrated rule when they were also made in float64, else by the guides' limit."""
    return SUBJECT.compare(reference, candidate, limits=limits)


def run(
    reference: Trainer | Recorded,
    candidate: Trainer | Recorded,
    *,
    inputs: Any = None,
    targets: Any = None,
    steps: int = 5,
    transfer: bool = False,
    rename: Mapping[str, str] | None = None,
    limits: Iterable[Limit | str] = (),
) -> Alignment:
    """Compare two live trainings of `steps` iterations, or two recordings.

    Live, every layer is also run alone and every update is also made from the reference's gradients, so that each is
    judged by itself. The weights are compared as they are; with `transfer` the reference's are carried over first.
    """
    if is_recorded(reference) and is_recorded(candidate):
        return compare(reference, candidate, limits=limits)  # type: ignore[arg-type]  # narrowed by the line above
    ours, theirs = _check(reference), _check(candidate)
    limits = tuple(limits)
    if limits:
        sides = [record(one, inputs=inputs, targets=targets, steps=steps) for one in (ours, theirs)]
        return compare(*sides, limits=limits)
    return align_models(
        ours.model,
        theirs.model,
        inputs,
        targets=targets,
        loss=(ours.loss, theirs.loss),
        optimizer=(ours.optimizer, theirs.optimizer),
        step=(ours.own_step, theirs.own_step),
        steps=steps,
        transfer=transfer,
        rename=rename,
    )


def _check(side: Any) -> Trainer:
    if not isinstance(side, Trainer) or (side.loss is None and side.step is None):
        raise UsageError(
            "the backward step takes a Trainer with a loss (or a step) on each side, "
            f"not {type(side).__name__}: Trainer(model, loss=…, optimizer=…)"
        )
    return side
