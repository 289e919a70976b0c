"""Forward pass: the same weights and the same input give the same output, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.alignment.models import align_models
from reprod_log.experiments.runs import batches_of
from reprod_log.recording import Recording
from reprod_log.steps.passes import record_passes
from reprod_log.steps.subject import Recorded, Subject, is_recorded
from reprod_log.steps.trainer import Trainer
from reprod_log.verdict import Limit

SUBJECT = Subject(
    name="forward",
    title="forward pass",
    words=("forward", "model", "logits", "network"),
    limits=("mean_abs:1e-6",),
    why="the guides' threshold",
)

_PHASES = ("data", "forward", "parameter", "buffer", "metric")
"""The weights too: when outputs differ, they are the first suspects."""


def record(side: Any, *, inputs: Any, float64: bool = True) -> Recording:
    """What every layer gives for `inputs` (arrays by parameter name, or in order), and again in float64.

    side   a model in the mode in which it is to be compared, or a Trainer; several models need a Trainer whose `step`
           only computes: step(models, None, inputs, None)
    """
    program = replace(Trainer.of(side), loss=None, optimizer=None)
    batches = batches_of(inputs, None, len(inputs) if isinstance(inputs, list) else 1)
    return record_passes(program, batches, float64=float64, phases=_PHASES)


def compare(reference: Recorded, candidate: Recorded, *, limits: Iterable[Limit | str] = ()) -> Alignment:
    """Two recordings, by the calibrated rule when they were also made in float64, else by the guides' limit."""
    return SUBJECT.compare(reference, candidate, limits=limits)


def run(
    reference: Any,
    candidate: Any,
    *,
    inputs: Any = None,
    transfer: bool = False,
    rename: Mapping[str, str] | None = None,
    limits: Iterable[Limit | str] = (),
) -> Alignment:
    """Compare two live models on `inputs`, or two recordings.

    Live, every layer is also run alone on the reference's input. The weights are compared as they are; with `transfer`
    the reference's are carried over first.
    """
    if is_recorded(reference) and is_recorded(candidate):
        return compare(reference, candidate, limits=limits)
    ours, theirs = Trainer.of(reference), Trainer.of(candidate)
    limits = tuple(limits)
    if limits:
        return compare(record(ours, inputs=inputs), record(theirs, inputs=inputs), limits=limits)
    return align_models(
        ours.model, theirs.model, inputs, step=(ours.step, theirs.step), transfer=transfer, rename=rename
    )
