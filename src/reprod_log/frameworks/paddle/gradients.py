"""PaddlePaddle's backward passes, gradients and gradient scalers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any

import numpy as np
import paddle
from paddle.amp.grad_scaler import AmpScaler

from reprod_log.frameworks.hooks import Hook, Undo, passing, replaced

_ENGINE = paddle.base.core.eager


def takes_gradient(parameter: Any) -> bool:
    return not parameter.stop_gradient


def gradient(parameter: Any) -> Any | None:
    found = parameter.grad
    if found is not None and found.is_selected_rows():
        # The gradient of a sparse embedding: only some rows, some of them several times.
        dense = np.zeros(tuple(parameter.shape), np.float32)
        np.add.at(dense, np.asarray(found.rows()), found.numpy())
        return dense
    return found


def on_gradient(tensor: Any, call: Callable[[Any], None]) -> Undo | None:
    if tensor.stop_gradient:
        return None
    hook = Hook(call)
    handle = tensor.register_hook(hook)
    if not tensor.is_leaf:
        # The handle holds the tensor, so it is not kept.
        return passing

    def undo() -> None:
        handle.remove()
        hook.silence()

    return undo


def on_backward(before: Callable[[Sequence[Any], bool], None], after: Callable[[bool], None]) -> Undo:
    undos = ExitStack()
    # `Tensor.backward` and `paddle.autograd.backward` both end here.
    undos.callback(replaced(_ENGINE, "run_backward", _around(_ENGINE.run_backward, before, after, True)))
    undos.callback(replaced(_ENGINE, "run_partial_grad", _around(_ENGINE.run_partial_grad, before, after, False)))
    return undos.close


def _around(
    function: Callable[..., Any],
    before: Callable[[Sequence[Any], bool], None],
    after: Callable[[bool], None],
    accumulates: bool,
) -> Callable[..., Any]:
    def instead(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        before(list(tensors), accumulates)
        well = False
        try:
            result = function(tensors, *args, **kwargs)
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
    scaler = paddle.amp.GradScaler
    scale, unscale, step = AmpScaler.scale, AmpScaler._unscale, scaler.step

    @wraps(scale)
    def hear_scale(self: Any, var: Any) -> Any:
        result = scale(self, var)
        scaled(var, result)
        return result

    @wraps(unscale)
    def hear_unscale(self: Any, optimizer: Any) -> Any:
        result = unscale(self, optimizer)
        if self._enable:
            unscaled(optimizer, float(self._scale.item()))
        return result

    @wraps(step)
    def hear_step(self: Any, optimizer: Any) -> Any:
        result = step(self, optimizer)
        if self._enable and bool(self._found_inf):
            skipped(optimizer)
        return result

    undos = ExitStack()
    undos.callback(replaced(AmpScaler, "scale", hear_scale))
    undos.callback(replaced(AmpScaler, "_unscale", hear_unscale))
    undos.callback(replaced(scaler, "step", hear_step))
    return undos.close
