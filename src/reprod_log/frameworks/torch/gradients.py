"""PyTorch's backward passes, gradients and gradient scalers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any

import torch

from reprod_log.frameworks.hooks import Hook, Undo, passing, replaced


def takes_gradient(parameter: Any) -> bool:
    return bool(parameter.requires_grad)


def gradient(parameter: Any) -> Any | None:
    return parameter.grad


def on_gradient(tensor: Any, call: Callable[[Any], None]) -> Undo | None:
    # Not `register_full_backward_hook` on the module: it breaks in-place operations and is silent for outputs in
    # lists, dicts and dataclasses.
    if not tensor.requires_grad:
        return None
    hook = Hook(call)
    handle = tensor.register_hook(hook)
    if not tensor.is_leaf:
        return passing

    def undo() -> None:
        handle.remove()
        hook.silence()

    return undo


def on_backward(before: Callable[[Sequence[Any], bool], None], after: Callable[[bool], None]) -> Undo:
    # `Tensor.backward` looks `torch.autograd.backward` up at each call, so this one place hears both.
    undos = ExitStack()
    undos.callback(replaced(torch.autograd, "backward", _around(torch.autograd.backward, before, after, True)))
    undos.callback(replaced(torch.autograd, "grad", _around(torch.autograd.grad, before, after, False)))
    return undos.close


def _around(
    function: Callable[..., Any],
    before: Callable[[Sequence[Any], bool], None],
    after: Callable[[bool], None],
    accumulates: bool,
) -> Callable[..., Any]:
    @wraps(function)
    def instead(*args: Any, **kwargs: Any) -> Any:
        tensors = args[0] if args else kwargs.get("tensors", kwargs.get("outputs", ()))
        before([tensors] if isinstance(tensors, torch.Tensor) else list(tensors), accumulates)
        well = False
        try:
            result = function(*args, **kwargs)
            well = True
        finally:
            after(well)
        return result

    return instead


def on_scaling(
    scaled: Callable[[Any, Any], None],
    unscaled: Callable[[Any, float], None],
    skipped: Callable[[Any], None],
) -> Undo:
    scaler = torch.amp.GradScaler
    scale, unscale, step = scaler.scale, scaler.unscale_, scaler.step

    @wraps(scale)
    def hear_scale(self: Any, outputs: Any) -> Any:
        result = scale(self, outputs)
        if isinstance(outputs, torch.Tensor):
            scaled(outputs, result)
        return result

    @wraps(unscale)
    def hear_unscale(self: Any, optimizer: Any) -> None:
        unscale(self, optimizer)
        if self.is_enabled():
            unscaled(optimizer, float(self.get_scale()))

    @wraps(step)
    def hear_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(self, optimizer, *args, **kwargs)
        if self.is_enabled() and any(found.item() for found in self._found_inf_per_device(optimizer).values()):
            skipped(optimizer)
        return result

    undos = ExitStack()
    undos.callback(replaced(scaler, "scale", hear_scale))
    undos.callback(replaced(scaler, "unscale_", hear_unscale))
    undos.callback(replaced(scaler, "step", hear_step))
    return undos.close
