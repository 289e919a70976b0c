"""PyTorch while it runs: calls, gradients, backward passes, optimizer steps, gradient scalers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import nn

from reprod_log.frameworks.contract import Draw
from reprod_log.frameworks.hooked import Hooked
from reprod_log.frameworks.hooks import (
    After,
    AfterBackward,
    Before,
    BeforeBackward,
    Clipped,
    Hook,
    ScalerMethods,
    Undo,
    around_backward,
    replaced,
    unhooked,
)
from reprod_log.frameworks.torch.tensors import tensor
from reprod_log.recording import Array


class TorchHooks(Hooked):
    functions = nn.functional

    def on_call(self, module: Any, before: Before, after: After) -> Undo:
        if isinstance(module, nn.TransformerEncoderLayer):
            before, after = _unfused(module, before, after)
        else:
            before, after = _behind_own_hooks(module, before, after)
        return super().on_call(module, before, after)

    def on_backward(self, before: BeforeBackward, after: AfterBackward) -> Undo:
        # `Tensor.backward` looks `torch.autograd.backward` up at each call, so this one place is enough for both.
        return around_backward(torch.autograd, (("backward", True), ("grad", False)), _differentiated, before, after)

    def on_step(self, optimizer: Any, before: Callable[[bool], None], clipped: Clipped, after: Undo) -> Undo:
        # Clipping is the user's own call here, before the step; `before` sees its result.
        first = Hook(lambda _, args, kwargs: before(_has_closure(args, kwargs)))
        last = Hook(lambda _, args, kwargs: after())
        handles = (optimizer.register_step_pre_hook(first), optimizer.register_step_post_hook(last))
        return unhooked(handles, (first, last))

    def scaler(self) -> ScalerMethods:
        scaler = torch.amp.GradScaler
        return ScalerMethods(
            scale=(scaler, "scale"),
            unscale=(scaler, "unscale_"),
            step=(scaler, "step"),
            is_enabled=lambda one: bool(one.is_enabled()),
            scale_of=lambda one: float(one.get_scale()),
            found_infinite=_found_infinite,
        )

    @staticmethod
    def is_tracing() -> bool:
        return bool(torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None)

    def in_place_version(self, tensor: Any) -> int:
        return int(tensor._version) if not tensor.is_inference() else 0

    def takes_gradient(self, tensor: Any) -> bool:
        return bool(tensor.requires_grad)

    def set_gradient(self, parameter: Any, array: Array | None) -> None:
        parameter.grad = None if array is None else tensor(array, like=parameter).to(parameter.dtype)

    def write(self, parameter: Any, array: Array) -> None:
        with torch.no_grad():
            parameter.copy_(tensor(array))

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor

    def multiply(self, tensor: Any, factors: Array, *, in_place: bool = False) -> Any:
        given = torch.from_numpy(np.array(factors)).to(tensor)
        return tensor.mul_(given) if in_place else tensor * given

    @contextmanager
    def masked(self, draw: Draw) -> Iterator[None]:
        attention, flips = nn.functional.scaled_dot_product_attention, torch.Tensor.bernoulli_

        @wraps(attention)
        def by_hand(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            written_out = _attention(query, key, value, *args, **kwargs)
            return attention(query, key, value, *args, **kwargs) if written_out is None else written_out

        @wraps(flips)
        def flipped(tensor: Any, p: Any = 0.5, **kwargs: Any) -> Any:
            # Stochastic depth is written with it.
            mask = draw(tuple(tensor.shape), 1.0 - p) if isinstance(p, float) else None
            return flips(tensor, p, **kwargs) if mask is None else tensor.copy_(torch.from_numpy(mask > 0))

        with super().masked(draw), ExitStack() as undo:
            undo.callback(replaced(nn.functional, attention.__name__, by_hand))
            undo.callback(replaced(torch.Tensor, flips.__name__, flipped))
            yield


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **settings: Any,
) -> Any:
    """Attention with a dropout of its own, written out, since the fused one draws where nobody can give it a mask."""
    if not dropout_p:
        return None
    scale = settings.get("scale")
    if settings.get("enable_gqa"):
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        is_bool = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, float("-inf")) if is_bool else scores + attn_mask
    return nn.functional.dropout(scores.softmax(-1), dropout_p) @ value


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


def _differentiated(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    tensors = args[0] if args else kwargs.get("tensors", kwargs.get("outputs", ()))
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    # An iterator is left alone: reading it would consume it.
    return tensors if isinstance(tensors, (list, tuple)) else ()


def _has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    # The optimizer itself is the first argument of a step hook.
    given = args[1:] if args and isinstance(args[0], torch.optim.Optimizer) else args
    return any(callable(value) for value in (*given, kwargs.get("closure")))


def _found_infinite(scaler: Any, optimizer: Any) -> bool:
    return any(found.item() for found in scaler._found_inf_per_device(optimizer).values())
