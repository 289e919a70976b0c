"""Inference: the exported engine gives what the training engine gives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reprod_log.alignment import Alignment
from reprod_log.capture import framework_of
from reprod_log.errors import CaptureError, UsageError, listed
from reprod_log.experiments.program import Program
from reprod_log.frameworks.contract import Framework
from reprod_log.recording import Key, Recording
from reprod_log.steps.frameworks import tools_of
from reprod_log.steps.subject import Recorded, Subject, is_recorded, recorded
from reprod_log.steps.values import named, origin, values_recording
from reprod_log.verdict import Limit

SUBJECT = Subject(
    name="inference",
    title="inference engine",
    words=("output", "infer", "inference", "export", "deploy"),
    limits=("mean_abs:1e-5",),
    why="the guides' threshold for fused inference kernels",
)


def record(side: Any, *, inputs: Any, engine: str = "") -> Recording:
    """The outputs of one engine for `inputs` (arrays by parameter name, in order, or a single one).

    side     a model, or a function from the inputs to the outputs (an engine that is loaded already)
    engine   '' runs the model as it is; else it is exported and run: 'export', 'jit' or 'onnx' for torch, 'inference'
             or 'jit' for paddle, 'default' for the first of these
    """
    framework = _framework(side)
    if framework is None:
        if engine or not callable(side):
            raise UsageError(f"only a model of torch or paddle can be exported, not a {type(side).__name__}")
        outputs = side(inputs)
    elif engine:
        outputs = _exported(framework, side, inputs, engine)
    else:
        program = Program(side)
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
    tools = tools_of(framework.NAME)
    engine = tools.ENGINES[0] if engine == "default" else engine
    if engine not in tools.ENGINES:
        raise UsageError(f"{framework.NAME} has no engine {engine!r}; known are {listed(tools.ENGINES)}")
    if framework.is_training(model):
        raise UsageError("the model is in training mode; an exported engine runs in evaluation mode: model.eval()")
    with tempfile.TemporaryDirectory() as folder:
        return tools.export(model, inputs, Path(folder), engine)(inputs)


def compare(reference: Recorded, candidate: Recorded, *, limits: Iterable[Limit | str] = ()) -> Alignment:
    """Two recordings of outputs, by the guides' limit or the given ones."""
    return SUBJECT.compare(reference, candidate, limits=limits)


def run(
    reference: Any,
    candidate: Any = None,
    *,
    inputs: Any = None,
    engine: str = "default",
    limits: Iterable[Limit | str] = (),
) -> Alignment:
    """Compare a model with an engine of it, or two recordings (output_training_engine, output_inference_engine).

    candidate   the engine: a function from inputs to outputs; None: the reference is exported by `engine` and run
    """
    ours = recorded(reference, lambda one: record(one, inputs=inputs))
    if candidate is None and is_recorded(reference):
        raise UsageError("give the recording of the exported engine as the candidate")
    exported = candidate is None
    theirs = recorded(
        reference if exported else candidate,
        lambda one: record(one, inputs=inputs, engine=engine if exported else ""),
    )
    return compare(ours, theirs, limits=limits)
