"""PaddlePaddle layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle.distributed.fleet import meta_parallel
from paddle.jit.dy2static.program_translator import ProgramTranslator, StaticFunction
from paddle.nn.layer.rnn import RNNBase

from reprod_log.frameworks.hooks import Hook, Undo, replaced
from reprod_log.layers.lookup import kind_of, layer_kind
from reprod_log.layers.rows import Column

_FLEET = ("TensorParallel", "ShardingParallel", "SegmentParallel")
_WRAPPERS = (
    paddle.DataParallel,
    *(getattr(meta_parallel, name) for name in _FLEET if hasattr(meta_parallel, name)),
)
"""Layers around a model whose name should not show; which of fleet's there are depends on the version."""

_INHERITED = frozenset(
    {
        "training",
        "_full_name",
        "_built",
        "_dtype",
        "_init_in_dynamic_mode",
        "_cast_to_low_precision",
        "_op_type",
        "_use_cudnn",
    }
)
"""Plain attributes that every layer has. (Making an empty layer to look would count up the layers' names.)"""


def is_module(thing: object) -> bool:
    return isinstance(thing, paddle.nn.Layer)


def children(module: Any) -> list[tuple[str, Any]]:
    return [(name, child) for name, child in module._sub_layers.items() if child is not None]


def parameters(module: Any) -> list[tuple[str, Any]]:
    statistics = _column(module).untrained
    return [(name, one) for name, one in module._parameters.items() if one is not None and name not in statistics]


def buffers(module: Any) -> list[tuple[str, Any]]:
    column = _column(module)
    statistics = column.untrained
    found = [(name, one) for name, one in module._parameters.items() if one is not None and name in statistics]
    return found + [
        (name, one)
        for name, one in module._buffers.items()
        if one is not None and name not in column.scratch and not _is_derived(name, module)
    ]


def _is_derived(name: str, module: Any) -> bool:
    """Whether it is the weight that weight_norm or spectral_norm made of what they keep: no state of its own."""
    return f"{name}_g" in module._parameters or f"{name}_orig" in module._parameters


def kind(module: Any) -> str:
    return kind_of((f"{one.__module__}.{one.__name__}" for one in type(module).__mro__), "paddle")


def _column(module: Any) -> Column:
    """What is known of the module's kind; nothing of a module of the user's own."""
    row = layer_kind(kind(module))
    return Column(()) if row is None else row.columns["paddle"]


def settings(module: Any) -> dict[str, Any]:
    found = {}
    for name, value in vars(module).items():
        plain = _plain(value)
        if plain is not None and name not in _INHERITED:
            found[name.lstrip("_")] = plain
    return found


def _plain(value: Any) -> Any:
    """The value as JSON has it; None when it is no plain setting."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)) and all(isinstance(item, (bool, int, float, str)) for item in value):
        return list(value)
    return None


def is_training(module: Any) -> bool:
    return bool(module.training)


def wrapped(module: Any) -> Any | None:
    return module._layers if isinstance(module, _WRAPPERS) else None


def opaque(module: Any) -> str:
    # Inside, hooks would see no values (full_graph=True) or be translated themselves (full_graph=False).
    converted = isinstance(vars(module).get("forward"), StaticFunction)
    if converted and ProgramTranslator.get_instance().enable_to_static:
        return "it is converted by to_static; record it after paddle.jit.enable_to_static(False) to see inside"
    return ""


def caveat(module: Any) -> str:
    return ""


def on_call(
    module: Any,
    before: Callable[[tuple[Any, ...], dict[str, Any]], None],
    after: Callable[[Any], None],
) -> Undo:
    hear_before = Hook(lambda _, args, kwargs: before(args, kwargs))
    hear_after = Hook(lambda _, args, kwargs, output: after(output))
    handles = (
        module.register_forward_pre_hook(hear_before, with_kwargs=True),
        # Always called: after an exception too, so that nobody waits for the end of the call.
        module.register_forward_post_hook(hear_after, with_kwargs=True, always_call=True),
    )

    def undo() -> None:
        for handle in handles:
            handle.remove()
        hear_before.silence()
        hear_after.silence()

    return undo


def on_any_call(
    before: Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None],
) -> Undo:
    call = paddle.nn.Layer.__call__

    def instead(self: Any, *args: Any, **kwargs: Any) -> Any:
        changed = before(self, args, kwargs)
        if changed is not None:
            args, kwargs = changed
        return call(self, *args, **kwargs)

    return replaced(paddle.nn.Layer, "__call__", instead)


def convert(module: Any, dtype: str) -> None:
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
