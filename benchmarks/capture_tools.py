"""What is done around a training step: nothing, or one of the tools that record it. Each is timed by the worker.

A tool gives, for a training, a context manager that yields the function to call for each batch; what the tool does at
the end of a step belongs to that call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from capture_models import Training

Step = Callable[[torch.Tensor, torch.Tensor], Any]
HOOKED = ["data", "forward", "loss", "backward", "gradient"]
"""What tools that hook modules record; the rest is parameters, updates, buffers and optimizer state."""


@contextmanager
def plain(training: Training, folder: Path) -> Iterator[Step]:
    yield training.step


@contextmanager
def forward_only(training: Training, folder: Path) -> Iterator[Step]:
    yield lambda x, y: training.model(x)


def ours(*, hooked: bool, save: bool = True, **options: Any) -> Callable[[Training, Path], Any]:
    """reprod_log's watch with these options."""

    @contextmanager
    def recorded(training: Training, folder: Path) -> Iterator[Step]:
        from reprod_log.capture import watch

        wanted = {**options, "phases": HOOKED} if hooked else options
        target = folder / "recording" if save else None
        with watch(training.model, optimizer=training.optimizer, inputs=False, save=target, **wanted) as run:

            def step(x: torch.Tensor, y: torch.Tensor) -> None:
                training.step(x, y)
                run.end_step()

            yield step

    return recorded


def msprobe(task: str) -> Callable[[Training, Path], Any]:
    """mindstudio-probe at module level (L0). Its settings are those of a process, so each task has its own worker."""

    @contextmanager
    def recorded(training: Training, folder: Path) -> Iterator[Step]:
        from msprobe.pytorch import PrecisionDebugger

        config = folder / "msprobe.json"
        what: dict[str, Any] = {"scope": [], "list": [], "data_mode": ["all"]}
        if task == "statistics":
            what["summary_mode"] = "statistics"
        settings = {"task": task, "dump_path": str(folder / "recording"), "rank": [], "step": [], "level": "L0"}
        config.write_text(json.dumps({**settings, task: what}))
        debugger = PrecisionDebugger(config_path=str(config))

        def step(x: torch.Tensor, y: torch.Tensor) -> None:
            debugger.start(model=training.model)
            training.step(x, y)
            debugger.stop()
            debugger.step()

        yield step

    return recorded


@contextmanager
def torchlens(training: Training, folder: Path) -> Iterator[Step]:
    """TorchLens follows a forward pass, in memory; there is no training step in it."""
    import torchlens as lens

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        lens.trace(training.model, x)

    yield step


@contextmanager
def numpy_hooks(training: Training, folder: Path) -> Iterator[Step]:
    """What people write by hand: hooks that copy, and np.save of a dict at the end of the step."""
    kept: dict[str, np.ndarray[Any, Any]] = {}
    (folder / "recording").mkdir(parents=True)
    handles = []

    def hook(name: str) -> Callable[..., None]:
        def after(module: Any, given: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                kept[f"{name}.output"] = output.detach().numpy().copy()
                if output.requires_grad:
                    output.register_hook(lambda g: kept.__setitem__(f"{name}.gradient", g.detach().numpy().copy()))

        return after

    for name, module in training.model.named_modules():
        handles.append(module.register_forward_hook(hook(name)))
    numbers = iter(range(10**9))

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        training.step(x, y)
        for name, parameter in training.model.named_parameters():
            if parameter.grad is not None:
                kept[f"{name}.grad"] = parameter.grad.numpy().copy()
        np.save(folder / "recording" / f"{next(numbers)}.npy", kept, allow_pickle=True)  # type: ignore[arg-type]
        kept.clear()

    yield step
    for handle in handles:
        handle.remove()


TOOLS: dict[str, dict[str, Callable[[Training, Path], Any]]] = {
    "reprod_log": {
        "plain": plain,
        "summary, hooked": ours(hooked=True, detail="summary"),
        "sketch, hooked": ours(hooked=True, detail="sketch"),
        "full, hooked": ours(hooked=True),
        "summary, everything": ours(hooked=False, detail="summary"),
        "sketch, everything": ours(hooked=False, detail="sketch"),
        "full, everything": ours(hooked=False),
    },
    "np.save": {"plain": plain, "np.save in hooks": numpy_hooks},
    "msprobe statistics": {"plain": plain, "msprobe statistics": msprobe("statistics")},
    "msprobe tensor": {"plain": plain, "msprobe tensor": msprobe("tensor")},
    "torchlens": {"forward": forward_only, "torchlens trace": torchlens},
}
"""By worker. The first mode of each is what the others of the same worker are compared with."""
