"""Subjects about whole models: forward pass, backward pass, training, and the exported engine.

A model is recorded as it runs and again in float64, so that two files can be judged by rounding.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.alignment import Alignment
from reprod_log.alignment.models import align_models
from reprod_log.capture import framework_of, to_numpy
from reprod_log.capture.eager import runner_of
from reprod_log.errors import CaptureError, ReprodLogError, UsageError, listed
from reprod_log.frameworks import Framework
from reprod_log.frameworks.side import Batch, Scope, Side, batches_of
from reprod_log.messages import Foreign, message
from reprod_log.recording import Array, Key, Recording, entry_of
from reprod_log.recording.program import of_one_program
from reprod_log.steps.subject import OwnLimits, Subject, has_float64, is_recorded, recorded
from reprod_log.steps.trainer import Trainer
from reprod_log.steps.values import given, named, origin, values_recording
from reprod_log.verdict import Limit

FLOAT64 = "float64"
Batches = Sequence[Batch]


def record_passes(
    side: Side,
    batches: Batches,
    *,
    float64: bool = True,
    phases: Sequence[str] | None = None,
    detailed: int | None = None,
) -> Recording:
    """The program's plain run, with its float64 run beside it.

    Of the first `detailed` steps (all by default) the `phases` are kept, layer outputs and their gradients only of
    the first, and of the later steps losses, rates and metrics.
    """

    def run(dtype: str | None) -> Recording:
        scope = Scope(run=dtype or "", dtype=dtype, phases=phases, full_steps=detailed)
        found = runner_of(side.framework).run(side, batches, scope)
        if detailed is None:
            return found
        kept = [one for one in found.entries if not (one.key.step and one.key.phase in ("forward", "backward"))]
        return replace(found, entries=tuple(kept))

    return with_float64(run, float64=float64)


def with_float64(make: Callable[[str | None], Recording], *, float64: bool = True) -> Recording:
    """What `make` gives in the program's own precision (None), with its entries in float64 beside it if asked for."""
    main = make(None)
    if not float64:
        return main
    try:
        wide = make(FLOAT64)
    except ReprodLogError:
        raise
    except Exception as error:  # a kernel without float64 may raise anything; its text is the note
        why = Foreign(f"{type(error).__name__}: {error}")
        return replace(main, notes=(*main.notes, message("note.experiments.no_float64", why=why)))
    return of_one_program(replace(main, entries=(*main.entries, *wide.entries)))


# ---- forward: the same weights and the same input give the same output, layer by layer -------------------------------
_FORWARD_PHASES = ("data", "forward", "parameter", "buffer", "metric")
"""The weights too: when outputs differ, they are the first suspects."""


def _record_forward(side: Any, *, inputs: Any, float64: bool = True) -> Recording:
    """What every layer gives for `inputs` (arrays by parameter name, or in order), and again in float64.

    side   a model in the mode in which it is to be compared, or a Trainer; several models need a Trainer whose `step`
           only computes: step(models, None, inputs, None)
    """
    program = replace(Trainer.of(side), loss=None, optimizer=None)
    batches = batches_of(inputs, None, len(inputs) if isinstance(inputs, list) else 1)
    return record_passes(program, batches, float64=float64, phases=_FORWARD_PHASES)


def _align_forward(
    reference: Any,
    candidate: Any,
    *,
    inputs: Any = None,
    transfer: bool = False,
    rename: Mapping[str, str] | None = None,
    limits: Iterable[Limit | str] = (),
) -> Alignment | tuple[Recording, Recording]:
    """Every layer is also run alone on the reference's input, unless limits are given.

    The weights are compared as they are; with `transfer` the candidate gets the reference's first.
    """
    ours, theirs = Trainer.of(reference), Trainer.of(candidate)
    if not limits:
        steps = ours.step, theirs.step
        return align_models(ours.model, theirs.model, inputs, step=steps, transfer=transfer, rename=rename)
    theirs = theirs.with_weights_of(ours, rename=rename, inputs=inputs) if transfer else theirs
    return _record_forward(ours, inputs=inputs), _record_forward(theirs, inputs=inputs)


forward = Subject(
    name="forward",
    title="forward pass",
    words=("forward", "model", "logits", "network"),
    limits=("mean_abs:1e-6",),
    why=message("reason.limit.guides"),
    record=_record_forward,
    together=_align_forward,
)


# ---- backward: losses, gradients and updates of several iterations from equal weights and data -----------------------
_BACKWARD_PHASES = ("data", "forward", "loss", "backward", "gradient", "clip", "lr", "update", "parameter", "buffer")
"""All but what the optimizer keeps, which shows in its next update."""


def _record_backward(
    side: Trainer,
    *,
    inputs: Any,
    targets: Any = None,
    steps: int = 5,
    detailed: int = 2,
    phases: Sequence[str] = _BACKWARD_PHASES,
    float64: bool = True,
) -> Recording:
    """Losses of all `steps`, gradients and updates of the first `detailed`, layers of the first; and all in float64.

    inputs, targets   one batch for every step, or a list with one per step
    detailed          2 shows momentum, which the first update does not
    phases            what is kept of the detailed steps; a very large model may have to do without forward and backward
    """
    _check_loss(side)
    batches = batches_of(inputs, targets, steps)
    return record_passes(side, batches, float64=float64, phases=phases, detailed=max(detailed, 1))


def _align_backward(
    reference: Any,
    candidate: Any,
    *,
    inputs: Any = None,
    targets: Any = None,
    steps: int = 5,
    transfer: bool = False,
    rename: Mapping[str, str] | None = None,
    limits: Iterable[Limit | str] = (),
) -> Alignment | tuple[Recording, Recording]:
    """Every layer is also run alone and every update is also made from the reference's gradients, unless limits are
    given, so that each is judged by itself.

    The weights are compared as they are; with `transfer` the candidate gets the reference's first.
    """
    ours, theirs = _check_loss(reference), _check_loss(candidate)
    if limits:
        if transfer:
            theirs = theirs.with_weights_of(ours, rename=rename, inputs=inputs)
        first, second = (_record_backward(one, inputs=inputs, targets=targets, steps=steps) for one in (ours, theirs))
        return first, second
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


def _check_loss(side: Any) -> Trainer:
    if not isinstance(side, Trainer) or (side.loss is None and side.step is None):
        raise UsageError(
            "the backward step takes a Trainer with a loss (or a step) on each side, "
            f"not {type(side).__name__}: Trainer(model, loss=…, optimizer=…)"
        )
    return side


backward = Subject(
    name="backward",
    title="backward pass",
    words=("bp", "backward", "backprop", "grad", "gradient", "gradients"),
    limits=("mean_abs:1e-6",),
    why=message("reason.limit.guides"),
    record=_record_backward,
    together=_align_backward,
)


# ---- training: the losses along a training and the score at its end --------------------------------------------------
def _record_training(side: Any, *, inputs: Any = None, targets: Any = None, float64: bool = True) -> Recording:
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


def _training_limits(
    reference: Recording, candidate: Recording, *, tolerance: float = 0.0015, trajectory: float = 0.05
) -> OwnLimits:
    """Tolerances, unless both were also trained in float64, which the calibrated rule judges.

    tolerance    of scores, absolute
    trajectory   of losses, relative: two float32 trainings part by rounding alone, the further the longer they are
    """
    if has_float64(reference):
        return (), ()
    limits = (
        Limit("max_abs", tolerance, reason=message("reason.limit.scores")),
        Limit("max_rel", trajectory, keys="*/loss/*", reason=message("reason.limit.losses")),
        Limit("max_rel", 1e-9, keys="*/lr/*", reason=message("reason.limit.rates")),
    )
    return limits, ()


training = Subject(
    name="training",
    title="training accuracy",
    words=("train", "training"),
    limits=("mean_abs:0.0015",),
    why=message("reason.limit.guides.score"),
    record=_record_training,
    limits_of=_training_limits,
)


# ---- inference: the exported engine gives what the training engine gives ---------------------------------------------
def _record_inference(side: Any, *, inputs: Any, engine: str = "") -> Recording:
    """The outputs of one engine for `inputs` (arrays by parameter name, in order, or a single one).

    side     a model, or a function from the inputs to the outputs (an engine that is loaded already)
    engine   '' runs the model as it is; else it is exported and run: 'export', 'jit' or 'onnx' for torch, 'inference'
             or 'jit' for paddle, 'default' for the first of these
    """
    framework = _framework(side)
    if framework is None:
        if engine or not callable(side):
            raise UsageError(f"only a model of a loaded framework can be exported, not a {type(side).__name__}")
        outputs = side(inputs)
    elif engine:
        outputs = _exported(framework, side, inputs, engine)
    else:
        program = Side(side)
        outputs = program.call(side, program.tensors(inputs, None))
    entries = {Key(path=name): array for name, array in named(outputs, "output")}
    provenance = origin(side, extra={"engine": engine or "training"})
    return values_recording(entries, provenance=provenance)


def _framework(side: Any) -> Framework | None:
    try:
        return framework_of(side)
    except CaptureError:
        return None


def _exported(framework: Framework, model: Any, inputs: Any, engine: str) -> Any:
    parts = framework.parts
    if parts is None or not parts.engines:
        raise UsageError(f"models of {framework.name} cannot be exported")
    engine = parts.engines[0] if engine == "default" else engine
    if engine not in parts.engines:
        raise UsageError(f"{framework.name} has no engine {engine!r}; known are {listed(parts.engines)}")
    if Side(model).is_training:
        raise UsageError("the model is in training mode; an exported engine runs in evaluation mode: model.eval()")
    with tempfile.TemporaryDirectory() as folder:
        return parts.export(model, inputs, Path(folder), engine)(inputs)


def _both_engines(
    reference: Any, candidate: Any = None, *, inputs: Any = None, engine: str = "default"
) -> tuple[Recording, Recording]:
    """A model and an engine of it.

    candidate   the engine: a function from inputs to outputs; None: the reference is exported by `engine` and run
    """
    ours = recorded(reference, lambda one: _record_inference(one, inputs=inputs))
    if candidate is None and is_recorded(reference):
        raise UsageError("give the recording of the exported engine as the candidate")
    exported = candidate is None
    theirs = recorded(
        reference if exported else candidate,
        lambda one: _record_inference(one, inputs=inputs, engine=engine if exported else ""),
    )
    return ours, theirs


inference = Subject(
    name="inference",
    title="inference engine",
    words=("output", "infer", "inference", "export", "deploy"),
    limits=("mean_abs:1e-5",),
    why=message("reason.limit.guides.fused"),
    record=_record_inference,
    together=_both_engines,
)
