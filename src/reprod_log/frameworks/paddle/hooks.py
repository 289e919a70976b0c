"""PaddlePaddle while it runs: calls, gradients, backward passes, optimizer steps, gradient scalers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any

import numpy as np
import paddle
from paddle.amp.grad_scaler import AmpScaler

from reprod_log.frameworks.hooks import (
    After,
    AnyBefore,
    Before,
    ScalerMethods,
    Undo,
    around_backward,
    around_module,
    around_scaler,
    before_any_module,
    gradient_hook,
    replaced,
)
from reprod_log.frameworks.hooks import backward as backward
from reprod_log.frameworks.hooks import is_computed as is_computed
from reprod_log.frameworks.paddle.optimizers import groups_of
from reprod_log.frameworks.paddle.tensors import dtype_of, is_tensor, overwrite, tensor
from reprod_log.recording import Array

# ---- events ---------------------------------------------------------------------------------------------------------


def on_call(module: Any, before: Before, after: After) -> Undo:
    return around_module(paddle.nn.Layer, is_tracing, module, before, after)


def on_any_call(before: AnyBefore) -> Undo:
    return before_any_module(paddle.nn.Layer, is_tracing, before)


def on_gradient(tensor: Any, call: Callable[[Any], Any]) -> Undo | None:
    return None if tensor.stop_gradient else gradient_hook(tensor, call)


def on_backward(before: Callable[[Sequence[Any], bool], None], after: Callable[[bool], None]) -> Undo:
    # `Tensor.backward` and `paddle.autograd.backward` both end here.
    names = (("run_backward", True), ("run_partial_grad", False))
    return around_backward(paddle.base.core.eager, names, lambda args, _: list(args[0]), before, after)


def on_step(
    optimizer: Any,
    before: Callable[[bool], None],
    clipped: Callable[[list[tuple[Any, Any]]], None],
    after: Callable[[], None],
) -> Undo:
    running = False

    def around(call: Callable[..., Any], *, is_own: bool) -> Callable[..., Any]:
        @wraps(call)
        def instead(*args: Any, **kwargs: Any) -> Any:
            nonlocal running
            if running or not (is_own or args[0] is optimizer):
                return call(*args, **kwargs)
            running = True
            try:
                given = (*args[0 if is_own else 1 :], *kwargs.values())
                before(any(callable(value) and not is_tensor(value) for value in given))
                with ExitStack() as undos:
                    for clip in _clips(optimizer):
                        undos.callback(_on_clip(clip, clipped))
                    result = call(*args, **kwargs)
                after()
            finally:
                running = False
            return result

        return instead

    undos = ExitStack()
    # `minimize` does not go through `step`.
    for name in ("step", "minimize"):
        # On the class, because a copy of the optimizer would step the original with what was put on the original.
        is_own = name in vars(optimizer)
        place = optimizer if is_own else type(optimizer)
        undos.callback(replaced(place, name, around(getattr(place, name), is_own=is_own)))
    return undos.close


def _clips(optimizer: Any) -> list[Any]:
    clips = [optimizer._grad_clip, *(group.get("grad_clip") for group in groups_of(optimizer))]
    return list({id(clip): clip for clip in clips if clip is not None}.values())


def _on_clip(clip: Any, clipped: Callable[[list[tuple[Any, Any]]], None]) -> Undo:
    """Clipping happens inside the step, and only some kinds of it leave their result in the parameter."""
    owner = type(clip)
    call = owner.__call__

    def instead(self: Any, params_grads: Any) -> Any:
        result = call(self, params_grads)
        if self is clip:
            clipped(list(result))
        return result

    return replaced(owner, "__call__", instead)


def on_new_optimizer(found: Callable[[Any], None]) -> Undo:
    undos = ExitStack()
    # Some optimizers do not call their parent's constructor, so each class that has one of its own is replaced.
    for owner in {paddle.optimizer.Optimizer, *_subclasses(paddle.optimizer.Optimizer)}:
        if "__init__" in vars(owner):
            undos.callback(replaced(owner, "__init__", _announcing(owner.__init__, found)))
    return undos.close


def _announcing(made: Callable[..., None], found: Callable[[Any], None]) -> Callable[..., None]:
    @wraps(made)
    def instead(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        found(self)

    return instead


def _subclasses(owner: Any) -> Iterator[Any]:
    for below in owner.__subclasses__():
        yield below
        yield from _subclasses(below)


def on_scaling(
    scaled: Callable[[Any, Any], None],
    unscaled: Callable[[Any, float], None],
    skipped: Callable[[Any], None],
) -> Undo:
    methods = ScalerMethods(
        scale=(AmpScaler, "scale"),
        unscale=(AmpScaler, "_unscale"),
        step=(paddle.amp.GradScaler, "step"),
        is_enabled=lambda one: bool(one._enable),
        scale_of=lambda one: float(one._scale.item()),
        found_infinite=lambda one, _: bool(one._found_inf),
    )
    return around_scaler(methods, is_tensor, scaled, unscaled, skipped)


def is_tracing() -> bool:
    return not paddle.in_dynamic_mode()


# ---- values and gradients -------------------------------------------------------------------------------------------


def in_place_version(tensor: Any) -> int:
    return int(tensor.inplace_version)


def takes_gradient(tensor: Any) -> bool:
    return not tensor.stop_gradient


def gradient(tensor: Any) -> Any | None:
    found = tensor.grad
    if found is not None and found.is_selected_rows():
        # The gradient of a sparse embedding: only some rows, some of them several times.
        dense = np.zeros(tuple(tensor.shape), np.float32)
        np.add.at(dense, np.asarray(found.rows()), found.numpy())
        return dense
    return found


def set_gradient(parameter: Any, array: Array | None) -> None:
    if array is None:
        parameter.clear_gradient(False)
    else:
        parameter.grad = tensor(array, like=parameter, dtype=dtype_of(parameter))


def write(parameter: Any, array: Array) -> None:
    overwrite(parameter, array)


def cast(tensor: Any, dtype: str) -> Any:
    return tensor.astype(dtype) if tensor.is_floating_point() else tensor


def multiply(tensor: Any, factors: Array) -> Any:
    return tensor * paddle.to_tensor(np.array(factors)).astype(tensor.dtype)
