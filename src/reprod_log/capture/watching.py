"""watch: record what a model does, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from reprod_log.capture.listening import ModelRun
from reprod_log.capture.provenance import running_program
from reprod_log.capture.run import Run
from reprod_log.capture.selection import RunOptions, selection
from reprod_log.capture.values import ValueRun
from reprod_log.errors import UsageError, listed
from reprod_log.frameworks import Framework, framework_of
from reprod_log.recording.program import FACT
from reprod_log.recording.stores import store_for

__all__ = ["Run", "named_optimizers", "watch"]


def watch(
    model: Any,
    *,
    optimizer: Any = None,
    save: str | Path | None = None,
    phases: Iterable[str] | None = None,
    layers: str | Iterable[str] | None = None,
    steps: int | Iterable[int] | None = None,
    detail: str | Mapping[str, str] = "full",
    inputs: bool | str = "first",
    budget: int | None = None,
    run: str = "",
    step_after: str | None = None,
    mesh: Any = None,
) -> Run:
    """A context manager that records everything `model` computes inside it; `recording` is available afterwards.

        with watch(model, optimizer=optimizer, save="recording") as run:
            for batch, target in loader:
                optimizer.zero_grad()
                criterion(model(batch), target).backward()
                optimizer.step()
        run.recording

    model       a model of torch, paddle, Keras or JAX, as align_models takes it, or several by name: {"generator": g}
    optimizer   one, several in a list, or several by name; without it, no learning rate, update or state is recorded
    save        where the recording goes: a folder that grows step by step (no suffix), or a file written at the end
                (.npz, .safetensors …); None keeps it in memory. With several processes each writes its own part.
    phases      which of data, forward, loss, backward, gradient, clip, lr, update, parameter, buffer, optimizer and
                metric to record; all by default
    layers      patterns of module or parameter paths, e.g. "encoder.*"; all by default
    steps       how many steps to record, or their numbers; all by default
    detail      "full"; "sketch" (statistics and 256 numbers per tensor, which estimate the difference from another run;
                "sketch:1024" for more of them); or "summary" (statistics and a hash instead of values);
                also by phase: {"forward": "summary"}
    inputs      whether each layer's inputs are recorded too: True, False, or "first": in the first recorded step only
    budget      maximum bytes of values to keep; what exceeds it is sketched, then summarised; the recording notes it
    run         the name of the pass ("float64" …) when `join_passes` puts several recordings of one program together
    step_after  the name of the optimizer whose update ends a step, when one iteration has several updates
    mesh        with several processes, the named axes of their grid: torch's DeviceMesh, paddle's ProcessMesh or
                HybridCommunicateGroup, or sizes by name, the outermost first: {"dp": 2, "tp": 2}. Detected if the
                parameters are distributed tensors or paddle's fleet was given hybrid_configs

    A step is everything up to an optimizer's update: batches accumulated into one update are one step, and a loss
    logged after the update still belongs to it. Without optimizers each call of the model is a step.
    `with run.step():` and `run.end_step()` mark steps explicitly, and `with run.paused():` skips a part.

    Losses are found where `backward` starts; `run.loss(value)` gives them a name or records one without backward, and
    `run.log(name, value, phase=…)` records anything else. A watched model computes the same bits as an unwatched one.
    """
    models = _named(model, "model", single="")
    optimizers = named_optimizers(optimizer)
    framework = _one_framework(models, optimizers)
    if step_after is not None and step_after not in optimizers:
        raise UsageError(
            f"step_after={step_after!r} is not an optimizer here; there are {listed(optimizers) or 'none'}"
        )
    if save is not None:
        # An ending that no store knows should not come out after hours of training.
        store_for(save)
        save = Path(save)
    if budget is not None and budget < 0:
        raise UsageError(f"budget must be a number of bytes, not {budget!r}")
    chosen = selection(phases=phases, layers=layers, steps=steps, detail=detail, inputs=inputs)
    facts: dict[str, Any] = {}
    # What runs is unknown then, which a comparison of several passes takes into account; the program goes on.
    with suppress(Exception):
        facts[FACT] = {run: running_program(framework).to_dict()}
    options = RunOptions(chosen, save, budget, run, step_after, mesh, facts)
    return (ModelRun if framework.programs is None else ValueRun)(framework, models, optimizers, options)


def _named(thing: Any, what: str, *, single: str) -> dict[str, Any]:
    if not isinstance(thing, Mapping):
        return {single: thing}
    wrong = [name for name in thing if not isinstance(name, str) or not name or set(name) & set("/:#@")]
    if wrong or not thing:
        raise UsageError(f"{what} must have names of letters, digits, '.' and '_', not {wrong or dict(thing)!r}")
    return dict(thing)


def named_optimizers(optimizer: Any) -> dict[str, Any]:
    """One optimizer, several in a list, or several by name, each with its name."""
    if optimizer is None:
        return {}
    # A named tuple is an optimizer itself in some frameworks.
    if isinstance(optimizer, (list, tuple)) and not hasattr(optimizer, "_fields"):
        return {f"optimizer{number}": one for number, one in enumerate(optimizer)}
    return _named(optimizer, "optimizer", single="optimizer")


def _one_framework(models: Mapping[str, Any], optimizers: Mapping[str, Any]) -> Framework:
    found: dict[str, Framework] = {}
    for name, model in models.items():
        framework = framework_of(model)
        if not framework.owns(model):
            raise UsageError(f"model {name!r} is a {type(model).__name__}, not a module".replace(" ''", ""))
        found[framework.name] = framework
    for name, optimizer in optimizers.items():
        framework = framework_of(optimizer)
        if not framework.owns_optimizer(optimizer):
            raise UsageError(f"optimizer {name!r} is a {type(optimizer).__name__}, not an optimizer")
        found[framework.name] = framework
    if len(found) > 1:
        raise UsageError("models and optimizers of different frameworks cannot be watched as one run; use two")
    return next(iter(found.values()))
