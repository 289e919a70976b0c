"""PaddlePaddle while it runs: calls, gradients, backward passes, optimizer steps, gradient scalers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

import numpy as np
import paddle
from paddle.amp.grad_scaler import AmpScaler

from reprod_log.frameworks.hooked import Hooked
from reprod_log.frameworks.hooks import (
    AfterBackward,
    BeforeBackward,
    Clipped,
    ScalerMethods,
    Undo,
    around_backward,
    replaced,
)
from reprod_log.frameworks.paddle.optimizers import groups_of
from reprod_log.frameworks.paddle.tensors import dtype_of, is_tensor, overwrite, tensor
from reprod_log.recording import Array


class PaddleHooks(Hooked):
    functions = paddle.nn.functional

    def on_backward(self, before: BeforeBackward, after: AfterBackward) -> Undo:
        # `Tensor.backward` and `paddle.autograd.backward` both end here.
        names = (("run_backward", True), ("run_partial_grad", False))
        return around_backward(paddle.base.core.eager, names, lambda args, _: list(args[0]), before, after)

    def on_step(self, optimizer: Any, before: Callable[[bool], None], clipped: Clipped, after: Undo) -> Undo:
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

    def scaler(self) -> ScalerMethods:
        return ScalerMethods(
            scale=(AmpScaler, "scale"),
            unscale=(AmpScaler, "_unscale"),
            step=(paddle.amp.GradScaler, "step"),
            is_enabled=lambda one: bool(one._enable),
            scale_of=lambda one: float(one._scale.item()),
            found_infinite=lambda one, _: bool(one._found_inf),
        )

    @staticmethod
    def is_tracing() -> bool:
        return not paddle.in_dynamic_mode()

    def in_place_version(self, tensor: Any) -> int:
        return int(tensor.inplace_version)

    def takes_gradient(self, tensor: Any) -> bool:
        return not tensor.stop_gradient

    def gradient(self, tensor: Any) -> Any | None:
        found = tensor.grad
        if found is not None and found.is_selected_rows():
            # The gradient of a sparse embedding: only some rows, some of them several times.
            dense = np.zeros(tuple(tensor.shape), np.float32)
            np.add.at(dense, np.asarray(found.rows()), found.numpy())
            return dense
        return found

    def set_gradient(self, parameter: Any, array: Array | None) -> None:
        if array is None:
            parameter.clear_gradient(False)
        else:
            parameter.grad = tensor(array, like=parameter, dtype=dtype_of(parameter))

    def write(self, parameter: Any, array: Array) -> None:
        overwrite(parameter, array)

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.astype(dtype) if tensor.is_floating_point() else tensor

    def multiply(self, tensor: Any, factors: Array, *, in_place: bool = False) -> Any:
        given = paddle.to_tensor(np.array(factors)).astype(tensor.dtype)
        return tensor.multiply_(given) if in_place else tensor * given


def _clips(optimizer: Any) -> list[Any]:
    clips = [optimizer._grad_clip, *(group.get("grad_clip") for group in groups_of(optimizer))]
    return list({id(clip): clip for clip in clips if clip is not None}.values())


def _on_clip(clip: Any, clipped: Clipped) -> Undo:
    """Clipping happens inside the step, and only some kinds of it leave their result in the parameter."""
    owner = type(clip)
    call = owner.__call__

    def instead(self: Any, params_grads: Any) -> Any:
        result = call(self, params_grads)
        if self is clip:
            clipped(list(result))
        return result

    return replaced(owner, "__call__", instead)
