"""Optimizer: the same hyper-parameters, and the same updates from the same weights and gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.capture import to_numpy, watch
from reprod_log.layers.hyperparameters import built_in_clip, hyperparameters
from reprod_log.recording import Array, Entry, Key, Recording, entry_of
from reprod_log.steps.passes import with_float64
from reprod_log.steps.probe import gradient
from reprod_log.steps.subject import Recorded, Subject, is_recorded
from reprod_log.steps.trainer import Trainer
from reprod_log.steps.treatment import (
    DECAYS,
    Prepared,
    check_trainer,
    prepare,
    treatment_entries,
    with_weights_of,
)
from reprod_log.verdict import Limit

SUBJECT = Subject(
    name="optimizer",
    title="optimizer",
    words=("optimizer", "optim", "optimiser"),
    limits=("rel_l2:1e-6",),
    why="an update from equal gradients differs by the rounding of a few operations",
)

_PHASES = ("forward", "gradient", "clip", "lr", "update")
"""What an optimizer keeps shows in its next update, and would double the size."""


def record(side: Trainer, *, steps: int = 2, inputs: Any = None, float64: bool = True) -> Recording:
    """Hyper-parameters, the rate and decay of every parameter, and `steps` updates from made gradients.

    Weights and gradients are made from the model's own weights, element by element, so that two sides with equal
    weights get equal gradients. 2 steps show momentum. With `inputs` the model is called once, which helps to line up
    layers of other names. The side's own model is not touched.
    """
    check_trainer(side)
    return with_float64(lambda dtype: _pass(side, steps, inputs, dtype), float64=float64)


def _pass(side: Trainer, steps: int, inputs: Any, dtype: str | None) -> Recording:
    run = dtype or ""
    prepared = prepare(side, dtype)
    settings = _settings(side, prepared, run)
    start = {slot: to_numpy(slot.tensor) for slot in prepared.tree.slots}
    with (
        side.hands.precision(dtype) if dtype is not None else nullcontext(),
        watch(prepared.model, optimizer=prepared.optimizers, run=run, phases=_PHASES) as watched,
    ):
        for step in range(steps):
            with watched.step():
                if step == 0 and inputs is not None:
                    side.call(prepared.model, side.tensors(inputs, dtype))
                _update(side, prepared, {slot.tensor: gradient(array, step) for slot, array in start.items()})
    described = [side.framework.optimizer_settings(one) for one in prepared.optimizers.values()]
    notes = [f"the optimizer clips by itself: {said}" for one in described if (said := built_in_clip(one))]
    prepared.tree.forget()
    recording = watched.recording
    return replace(recording, entries=(*settings, *recording.entries), notes=(*recording.notes, *notes))


def _update(side: Trainer, prepared: Prepared, gradients: Mapping[Any, Array]) -> None:
    # The gradient of Σ p·g is g.
    terms = [
        side.hands.total(parameter, wanted)
        for parameter, wanted in gradients.items()
        if side.framework.takes_gradient(parameter)
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    total.backward()
    if side.clip is not None:
        side.clip(prepared.model)
    for optimizer in prepared.optimizers.values():
        optimizer.step()
        side.hands.clear(optimizer)


def _settings(side: Trainer, prepared: Prepared, run: str) -> list[Entry]:
    """The numbers that were set and the weights to start from: of the optimizer, then of each parameter."""
    entries = []
    for name, optimizer in prepared.optimizers.items():
        for setting, value in hyperparameters(side.framework.optimizer_settings(optimizer)).items():
            entries.append(entry_of(Key(f"{name}.{setting}", "optimizer", 0, role="setting", run=run), value))
    entries += treatment_entries(side, prepared, ("lr", *DECAYS), run)
    for slot in prepared.tree.slots:
        key = Key(slot.path, "parameter", 0, role="start", run=run)
        entries.append(entry_of(key, to_numpy(slot.tensor), layer_type=slot.node.type))
    return entries


def compare(reference: Recorded, candidate: Recorded, *, limits: Iterable[Limit | str] = ()) -> Alignment:
    """Two recordings, by the calibrated rule when they were also made in float64."""
    return SUBJECT.compare(reference, candidate, limits=limits)


def run(
    reference: Any,
    candidate: Any,
    *,
    steps: int = 2,
    inputs: Any = None,
    transfer: bool = True,
    rename: Mapping[str, str] | None = None,
    limits: Iterable[Limit | str] = (),
) -> Alignment:
    """Compare two optimizers (each a Trainer, see `record`), or two recordings of them.

    With `transfer` a copy of the candidate's model gets the reference's weights first: only the optimizers are
    compared here.
    """
    if is_recorded(reference) and is_recorded(candidate):
        return compare(reference, candidate, limits=limits)
    ours, theirs = check_trainer(reference), check_trainer(candidate)
    if transfer:
        theirs = with_weights_of(ours, theirs, rename=rename, inputs=inputs)
    return compare(*(record(one, steps=steps, inputs=inputs) for one in (ours, theirs)), limits=limits)
