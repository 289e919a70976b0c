"""Regularization: every parameter is pulled towards zero in the same way and with the same strength."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.capture import watch
from reprod_log.recording import Recording
from reprod_log.steps.passes import with_float64
from reprod_log.steps.subject import Recorded, Subject, is_recorded
from reprod_log.steps.trainer import Trainer
from reprod_log.steps.treatment import DECAYS, check_trainer, prepare, treatment_entries, with_weights_of
from reprod_log.steps.values import origin
from reprod_log.verdict import Limit

SUBJECT = Subject(
    name="regularization",
    title="regularization",
    words=("regularization", "regularizer", "regular", "decay"),
    limits=("max_rel:1e-6",),
    why="coefficients are settings: they agree up to the float32 in which some are kept",
)


def record(side: Trainer, *, inputs: Any = None) -> Recording:
    """The coefficients of L1, L2 and decoupled decay of every parameter, whichever way they were set.

    They are read from the optimizer's groups, from attributes of the parameters, and from `side.penalty`, the term that
    a loop adds to its loss: its gradient is taken apart into shares of sign(w) and w. With `inputs` the model is called
    once, which lines up layers of other names; then both sides must have equal weights.
    """
    check_trainer(side)
    return with_float64(lambda dtype: _pass(side, inputs, dtype), float64=inputs is not None)


def _pass(side: Trainer, inputs: Any, dtype: str | None) -> Recording:
    run = dtype or ""
    prepared = prepare(side, dtype)
    entries = treatment_entries(side, prepared, DECAYS, run)
    if inputs is None:
        found = Recording(tuple(entries), origin(side.framework), modules=prepared.tree.infos())
    else:
        with (
            side.hands.precision(dtype) if dtype is not None else nullcontext(),
            watch(prepared.model, run=run, phases=("forward",)) as watched,
        ):
            side.call(prepared.model, side.tensors(inputs, dtype))
        found = replace(watched.recording, entries=(*entries, *watched.recording.entries))
    prepared.tree.forget()
    return found


def compare(reference: Recorded, candidate: Recorded, *, limits: Iterable[Limit | str] = ()) -> Alignment:
    """Two recordings of coefficients, relative to their size unless other limits are given."""
    return SUBJECT.compare(reference, candidate, limits=limits)


def run(
    reference: Any,
    candidate: Any,
    *,
    inputs: Any = None,
    rename: Mapping[str, str] | None = None,
    limits: Iterable[Limit | str] = (),
) -> Alignment:
    """Compare how two optimizers and penalties (each a Trainer) regularize each parameter, or two recordings of it.

    With `inputs` a copy of the candidate's model gets the reference's weights first.
    """
    if is_recorded(reference) and is_recorded(candidate):
        return compare(reference, candidate, limits=limits)
    ours, theirs = check_trainer(reference), check_trainer(candidate)
    if inputs is not None:
        theirs = with_weights_of(ours, theirs, rename=rename, inputs=inputs)
    return compare(*(record(one, inputs=inputs) for one in (ours, theirs)), limits=limits)
