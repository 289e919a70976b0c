"""PyTorch optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from reprod_log.frameworks.hooks import Hook, Undo, replaced


def is_optimizer(thing: object) -> bool:
    return isinstance(thing, torch.optim.Optimizer)


def optimizer_parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def learning_rates(optimizer: Any) -> list[float]:
    # A tensor when the optimizer is capturable.
    return [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]


def optimizer_settings(optimizer: Any) -> dict[str, Any]:
    groups = []
    for group in optimizer.param_groups:
        groups.append({name: _plain(value) for name, value in group.items() if name not in ("params", "param_names")})
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    return {"type": type(optimizer).__name__, "groups": groups, "parameters_in_groups": sizes}


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)


def optimizer_state(optimizer: Any, parameter: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    # `state` is a defaultdict: asking for what is not there would add it.
    state = optimizer.state.get(parameter)
    if not state:
        return []
    step = state.get("step")
    facts = {} if step is None else {"optimizer_step": int(step)}
    return [
        (name, value, dict(facts))
        for name, value in state.items()
        if name != "step" and isinstance(value, torch.Tensor)
    ]


def on_step(
    optimizer: Any,
    before: Callable[[bool], None],
    clipped: Callable[[list[tuple[Any, Any]]], None],
    after: Callable[[], None],
) -> Undo:
    # Clipping is the user's own call here, before the step; `before` sees its result.
    hear_before = Hook(lambda _, args, kwargs: before(_has_closure(args, kwargs)))
    hear_after = Hook(lambda _, args, kwargs: after())
    handles = (
        optimizer.register_step_pre_hook(hear_before),
        optimizer.register_step_post_hook(hear_after),
    )

    def undo() -> None:
        for handle in handles:
            handle.remove()
        hear_before.silence()
        hear_after.silence()

    return undo


def _has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    # The optimizer itself is the first argument of a step hook.
    given = args[1:] if args and is_optimizer(args[0]) else args
    return any(callable(value) for value in (*given, kwargs.get("closure")))


def convert_optimizer(optimizer: Any, dtype: str) -> None:
    for state in optimizer.state.values():
        for name, value in state.items():
            if name != "step" and isinstance(value, torch.Tensor) and value.is_floating_point():
                state[name] = value.to(getattr(torch, dtype))


def on_new_optimizer(found: Callable[[Any], None]) -> Undo:
    made = torch.optim.Optimizer.__init__

    def instead(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        found(self)

    return replaced(torch.optim.Optimizer, "__init__", instead)
