"""PyTorch while it runs: calls, gradients, backward passes, optimizer steps, gradient scalers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from reprod_log.frameworks.hooks import (
    After,
    AnyBefore,
    Before,
    Hook,
    ScalerMethods,
    Undo,
    around_backward,
    around_module,
    around_scaler,
    before_any_module,
    gradient_hook,
    replaced,
    unhooked,
)
from reprod_log.frameworks.hooks import backward as backward
from reprod_log.frameworks.hooks import is_computed as is_computed
from reprod_log.frameworks.torch.tensors import is_tensor, tensor
from reprod_log.recording import Array

# ---- events ---------------------------------------------------------------------------------------------------------


def on_call(module: Any, before: Before, after: After) -> Undo:
    if isinstance(module, nn.TransformerEncoderLayer):
        before, after = _unfused(module, before, after)
    else:
        before, after = _behind_own_hooks(module, before, after)
    return around_module(nn.Module, is_tracing, module, before, after)


def _unfused(module: Any, before: Before, after: After) -> tuple[Before, After]:
    """Keep the layer from the fused path while it is called, as a hook of its own would: its children have to run."""
    handles: list[Any] = []

    def first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        before(args, kwargs)
        handles.append(module.register_forward_pre_hook(_nothing))

    def last(output: Any) -> Any:
        if handles:
            handles.pop().remove()
        return after(output)

    return first, last


def _behind_own_hooks(module: Any, before: Before, after: After) -> tuple[Before, After]:
    """Have `before` called after hooks that the module has itself: those of sharded modules put its weights together.

    Ours is a hook too then, which exists only during the call.
    """
    calls: list[tuple[Any, list[bool]]] = []

    def first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not getattr(module, "_forward_pre_hooks", None):
            calls.append((None, [True]))
            return before(args, kwargs)
        began: list[bool] = []

        def behind(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            began.append(True)
            before(args, kwargs)

        calls.append((module.register_forward_pre_hook(behind, with_kwargs=True), began))
        return None

    def last(output: Any) -> Any:
        handle, began = calls.pop()
        if handle is not None:
            handle.remove()
        return after(output) if began else None

    return first, last


def _nothing(module: Any, args: tuple[Any, ...]) -> None:
    """A hook that only has to be there."""


def on_any_call(before: AnyBefore) -> Undo:
    return before_any_module(nn.Module, is_tracing, before)


def on_gradient(tensor: Any, call: Callable[[Any], Any]) -> Undo | None:
    # Not `register_full_backward_hook` on the module: it breaks in-place operations and is silent for outputs in
    # lists, dicts and dataclasses.
    return gradient_hook(tensor, call) if tensor.requires_grad else None


def on_backward(before: Callable[[Sequence[Any], bool], None], after: Callable[[bool], None]) -> Undo:
    # `Tensor.backward` looks `torch.autograd.backward` up at each call, so this one place is enough for both.
    return around_backward(torch.autograd, (("backward", True), ("grad", False)), _differentiated, before, after)


def _differentiated(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    tensors = args[0] if args else kwargs.get("tensors", kwargs.get("outputs", ()))
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    # An iterator is left alone: reading it would consume it.
    return tensors if isinstance(tensors, (list, tuple)) else ()


def on_step(
    optimizer: Any,
    before: Callable[[bool], None],
    clipped: Callable[[list[tuple[Any, Any]]], None],
    after: Callable[[], None],
) -> Undo:
    # Clipping is the user's own call here, before the step; `before` sees its result.
    first = Hook(lambda _, args, kwargs: before(_has_closure(args, kwargs)))
    last = Hook(lambda _, args, kwargs: after())
    handles = (optimizer.register_step_pre_hook(first), optimizer.register_step_post_hook(last))
    return unhooked(handles, (first, last))


def _has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    # The optimizer itself is the first argument of a step hook.
    given = args[1:] if args and isinstance(args[0], torch.optim.Optimizer) else args
    return any(callable(value) for value in (*given, kwargs.get("closure")))


def on_new_optimizer(found: Callable[[Any], None]) -> Undo:
    made = torch.optim.Optimizer.__init__

    def instead(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        found(self)

    return replaced(torch.optim.Optimizer, "__init__", instead)


def on_scaling(
    scaled: Callable[[Any, Any], None],
    unscaled: Callable[[Any, float], None],
    skipped: Callable[[Any], None],
) -> Undo:
    scaler = torch.amp.GradScaler
    methods = ScalerMethods(
        scale=(scaler, "scale"),
        unscale=(scaler, "unscale_"),
        step=(scaler, "step"),
        is_enabled=lambda one: bool(one.is_enabled()),
        scale_of=lambda one: float(one.get_scale()),
        found_infinite=_found_infinite,
    )
    return around_scaler(methods, is_tensor, scaled, unscaled, skipped)


def _found_infinite(scaler: Any, optimizer: Any) -> bool:
    return any(found.item() for found in scaler._found_inf_per_device(optimizer).values())


def is_tracing() -> bool:
    return bool(torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None)


# ---- values and gradients -------------------------------------------------------------------------------------------


def in_place_version(tensor: Any) -> int:
    return int(tensor._version) if not tensor.is_inference() else 0


def takes_gradient(tensor: Any) -> bool:
    return bool(tensor.requires_grad)


def gradient(tensor: Any) -> Any | None:
    return tensor.grad


def set_gradient(parameter: Any, array: Array | None) -> None:
    parameter.grad = None if array is None else tensor(array, like=parameter).to(parameter.dtype)


def write(parameter: Any, array: Array) -> None:
    with torch.no_grad():
        parameter.copy_(tensor(array))


def cast(tensor: Any, dtype: str) -> Any:
    return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor


def multiply(tensor: Any, factors: Array) -> Any:
    return tensor * torch.from_numpy(np.array(factors)).to(tensor)
