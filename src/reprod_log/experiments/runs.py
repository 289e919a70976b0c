"""One pass of a program from its start: free, in another precision, or with the reference's gradients put in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from reprod_log.capture import watch
from reprod_log.experiments.masks import Masks, shared_masks
from reprod_log.experiments.program import Program
from reprod_log.frameworks.tensors import plain_batch
from reprod_log.recording import Recording

Inject = Callable[[Any, int], None]
"""Overwrites the gradients of a model after the backward pass of a step."""


def run_program(
    program: Program,
    batches: Sequence[tuple[Any, Any]],
    *,
    run: str = "",
    dtype: str | None = None,
    seed: int = 0,
    inject: Inject | None = None,
    phases: Sequence[str] | None = None,
) -> Recording:
    """The recording of all steps. The program's own model is not touched; random state is put back."""
    framework = program.framework
    state = framework.rng_state()
    try:
        with program.hands.precision(dtype) if dtype is not None else nullcontext():
            framework.seed(seed)
            model = program.fresh(dtype)
            optimizer, scheduler = program.make_optimizer(model)
            masks = Masks(seed=0)

            def after_backward(well: bool) -> None:
                # The number by which the gradients were recorded: an iteration may have several updates.
                if inject is not None and well:
                    inject(model, watched.step_number)

            # Injection is set up before watching, so that what is recorded as the raw gradient is what was computed.
            with (
                shared_masks(program, model, masks),
                watch(model, optimizer=optimizer, run=run, phases=phases) as watched,
            ):
                undo = framework.on_backward(lambda *_: None, after_backward) if inject is not None else None
                try:
                    for inputs, targets in batches:
                        given = program.tensors(inputs, dtype)
                        program.iterate(
                            model, optimizer, given, None if targets is None else program.tensors(targets, dtype)
                        )
                        if optimizer is None and program.loss is not None:
                            watched.end_step()
                            _forget_gradients(program, model)
                        if scheduler is not None:
                            scheduler.step()
                        masks.next_step()
                finally:
                    if undo is not None:
                        undo()
            return watched.recording
    finally:
        framework.set_rng_state(state)


def run_in_part(
    program: Program,
    batches: Sequence[tuple[Any, Any]],
    *,
    run: str = "",
    dtype: str | None = None,
    phases: Sequence[str] | None = None,
    detailed: int | None = None,
    brief: Sequence[str] = ("loss", "lr", "metric"),
) -> Recording:
    """The recording of all steps: everything of the first `detailed` iterations, of the later ones what is in `brief`.

    All of a large model at every step is more than a memory holds.
    """
    if detailed is None:
        return run_program(program, batches, run=run, dtype=dtype, phases=phases)
    first = run_program(program, batches[:detailed], run=run, dtype=dtype, phases=phases)
    if detailed >= len(batches):
        return first
    # Both start alike and repeat each other bit for bit, so the second continues the first.
    rest = run_program(program, batches, run=run, dtype=dtype, phases=brief)
    # An iteration may have several steps (updates).
    last = max(first.steps, default=-1)
    return replace(first, entries=(*first.entries, *(one for one in rest.entries if (one.key.step or 0) > last)))


def _forget_gradients(program: Program, model: Any) -> None:
    from reprod_log.transfer.frameworks import framework_of as transfer_framework_of

    for one in program.models(model):
        writer = transfer_framework_of(one)
        for _, module in program.modules(one):
            for _, parameter in program.framework.parameters(module):
                writer.write_gradient(parameter, None)


def batches_of(inputs: Any, targets: Any, steps: int) -> list[tuple[Any, Any]]:
    """One (inputs, targets) per step: a list gives each step its own, anything else is used at every step."""
    inputs, targets = plain_batch(inputs), plain_batch(targets)
    listed_inputs = inputs if isinstance(inputs, list) else [inputs] * steps
    listed_targets = targets if isinstance(targets, list) else [targets] * len(listed_inputs)
    # A single array needs no tuple around it.
    batches = [(one,) if isinstance(one, np.ndarray) else one for one in listed_inputs[:steps]]
    return list(zip(batches, listed_targets[:steps], strict=True))


def as_mapping(model: Any) -> Mapping[str, Any]:
    """The models of a side by name; a single one has the empty name."""
    return model if isinstance(model, Mapping) else {"": model}
