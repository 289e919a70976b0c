"""PaddlePaddle layers, and what happens while they run: gradients, backward passes, steps, gradient scalers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

import numpy as np
import paddle
from paddle.amp.grad_scaler import AmpScaler
from paddle.distributed.fleet import meta_parallel
from paddle.jit.dy2static.program_translator import ProgramTranslator, StaticFunction
from paddle.nn.layer.rnn import RNNBase

from reprod_log.frameworks.contract import OwnTensor, plain_settings
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
from reprod_log.frameworks.paddle.tensors import dtype_of, is_tensor, overwrite, tensor
from reprod_log.layers.lookup import kind_of, layer_kind, of_the_tables
from reprod_log.layers.rows import Column
from reprod_log.recording import Array

_FLEET = ("TensorParallel", "ShardingParallel", "SegmentParallel")
_WRAPPERS = (
    paddle.DataParallel,
    *(getattr(meta_parallel, name) for name in _FLEET if hasattr(meta_parallel, name)),
)
"""Layers around a model whose name should not show; which of fleet's there are depends on the version."""

_INHERITED = (
    "training", "_full_name", "_built", "_dtype", "_init_in_dynamic_mode", "_cast_to_low_precision", "_op_type",
    "_use_cudnn",
)  # fmt: skip
"""Plain attributes that every layer has. (Making an empty layer to look would count up the layers' names.)"""


class PaddleModules(Hooked):
    package = "paddle"
    module_class = paddle.nn.Layer
    child_store = "_sub_layers"
    functions = paddle.nn.functional
    no_gradients = staticmethod(paddle.no_grad)
    flat_weights = "_all_weights"
    hook_attributes = ("_forward_pre_hooks", "_forward_post_hooks")

    def own(self, module: Any) -> list[OwnTensor]:
        column = _column_of_class(type(module))
        found = [
            OwnTensor(name, tensor, trained=name not in column.untrained)
            for name, tensor in module._parameters.items()
            if tensor is not None
        ]
        if module._buffers:
            volatile = module._non_persistable_buffer_names_set
            found += [
                OwnTensor(name, tensor, trained=False, persistent=name not in volatile)
                for name, tensor in module._buffers.items()
                if tensor is not None and name not in column.scratch and not _is_derived(name, module)
            ]
        return found

    def state_names(self, model: Any) -> dict[str, Any]:
        return dict(model.state_dict())

    def settings(self, module: Any) -> dict[str, Any]:
        return plain_settings(module, _INHERITED)

    def set_setting(self, module: Any, name: str, value: Any) -> None:
        super().set_setting(module, name, value)
        # A convolution keeps its padding a second time, in the form that its kernel wants.
        if name == "padding" and "_updated_padding" in vars(module):
            module._updated_padding = value

    def wrapped(self, module: Any) -> Any | None:
        return module._layers if isinstance(module, _WRAPPERS) else None

    def opaque(self, module: Any) -> str:
        # Inside, hooks would see no values (full_graph=True) or be translated themselves (full_graph=False).
        converted = isinstance(vars(module).get("forward"), StaticFunction)
        if converted and ProgramTranslator.get_instance().enable_to_static:
            return "word.opaque.static"
        return ""

    def convert(self, module: Any, dtype: str) -> None:
        layers = module.sublayers(include_self=True)
        aside = []
        for layer in layers:
            for name, buffer in list(layer._buffers.items()):
                if buffer is not None and not buffer.is_floating_point():
                    # `to` would cast counters too, and fails on the empty dropout state of a recurrent layer.
                    aside.append((layer, name, layer._buffers.pop(name)))
        module.to(dtype=dtype)
        for layer, name, buffer in aside:
            layer._buffers[name] = buffer
        for layer in layers:
            if isinstance(layer, RNNBase):
                # It computes with one flat copy of its weights.
                layer.flatten_parameters()

    # while they run

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
                        for clip in _clips(optimizer, self.groups(optimizer)):
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


def _is_derived(name: str, module: Any) -> bool:
    """Whether it is the weight that weight_norm or spectral_norm made of what they keep: no state of its own."""
    return f"{name}_g" in module._parameters or f"{name}_orig" in module._parameters


@of_the_tables
def _column_of_class(cls: type) -> Column:
    """What is known of the kind of a module of this class; nothing of one of the user's own."""
    row = layer_kind(kind_of((f"{one.__module__}.{one.__name__}" for one in cls.__mro__), "paddle"))
    return Column(()) if row is None else row.columns["paddle"]


def _clips(optimizer: Any, groups: list[dict[str, Any]]) -> list[Any]:
    clips = [optimizer._grad_clip, *(group.get("grad_clip") for group in groups)]
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
