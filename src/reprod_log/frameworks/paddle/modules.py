"""PaddlePaddle layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import paddle
from paddle.distributed.fleet import meta_parallel
from paddle.jit.dy2static.program_translator import ProgramTranslator, StaticFunction
from paddle.nn.layer.rnn import RNNBase

from reprod_log.frameworks.contract import OwnTensor, plain_settings
from reprod_log.frameworks.hooked import Hooked, evaluation_mode
from reprod_log.layers.lookup import kind_of, layer_kind, of_the_tables
from reprod_log.layers.rows import Column

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
    flat_weights = "_all_weights"
    hook_attributes = ("_forward_pre_hooks", "_forward_post_hooks")

    def children(self, module: Any) -> list[tuple[str, Any]]:
        return [(name, child) for name, child in module._sub_layers.items() if child is not None]

    def own(self, module: Any) -> list[OwnTensor]:
        column = _column(module)
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
            for name, tensor in list(layer._buffers.items()):
                if tensor is not None and not tensor.is_floating_point():
                    # `to` would cast counters too, and fails on the empty dropout state of a recurrent layer.
                    aside.append((layer, name, layer._buffers.pop(name)))
        module.to(dtype=dtype)
        for layer, name, tensor in aside:
            layer._buffers[name] = tensor
        for layer in layers:
            if isinstance(layer, RNNBase):
                # It computes with one flat copy of its weights.
                layer.flatten_parameters()

    @contextmanager
    def quiet(self, model: Any) -> Iterator[None]:
        with ExitStack() as undo:
            undo.enter_context(self.uncompiled())
            undo.enter_context(evaluation_mode(model.sublayers(include_self=True)))
            undo.enter_context(paddle.no_grad())
            yield


def _is_derived(name: str, module: Any) -> bool:
    """Whether it is the weight that weight_norm or spectral_norm made of what they keep: no state of its own."""
    return f"{name}_g" in module._parameters or f"{name}_orig" in module._parameters


def _column(module: Any) -> Column:
    """What is known of the module's kind; nothing of a module of the user's own."""
    return _column_of_class(type(module))


@of_the_tables
def _column_of_class(cls: type) -> Column:
    row = layer_kind(kind_of((f"{one.__module__}.{one.__name__}" for one in cls.__mro__), "paddle"))
    return Column(()) if row is None else row.columns["paddle"]
