"""PyTorch modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from reprod_log.frameworks.hooks import Hook, Undo, replaced
from reprod_log.frameworks.torch.distributed import FLAT_PARAMETER, is_first_fsdp
from reprod_log.layers.lookup import kind_of

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def is_module(thing: object) -> bool:
    return isinstance(thing, nn.Module)


def children(module: Any) -> list[tuple[str, Any]]:
    # `named_children` leaves out a child that stands under two names.
    return [(name, child) for name, child in module._modules.items() if child is not None]


def parameters(module: Any) -> list[tuple[str, Any]]:
    return [
        (name, tensor) for name, tensor in module._parameters.items() if _has_values(tensor) and name != FLAT_PARAMETER
    ]


def buffers(module: Any) -> list[tuple[str, Any]]:
    # A count of batches that only torch keeps, and uses only for a momentum of None.
    return [
        (name, tensor)
        for name, tensor in module._buffers.items()
        if _has_values(tensor) and name != "num_batches_tracked"
    ]


def _has_values(tensor: Any) -> bool:
    return tensor is not None and not isinstance(tensor, nn.parameter.UninitializedTensorMixin)


def kind(module: Any) -> str:
    return kind_of((f"{one.__module__}.{one.__name__}" for one in type(module).__mro__), "torch")


def settings(module: Any) -> dict[str, Any]:
    inherited = vars(nn.Module())
    found = {}
    for name, value in vars(module).items():
        plain = _plain(value)
        if plain is not None and name not in inherited:
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
    if isinstance(module, _WRAPPERS) or is_first_fsdp(module):
        return module.module
    if _is_compiled_wrapper(module):
        return module._orig_mod
    return None


def opaque(module: Any) -> str:
    if isinstance(module, torch.jit.ScriptModule):
        return "it is a TorchScript module; watch the Python model it was made from to see inside"
    if _is_compiled_wrapper(module) or module._compiled_call_impl is not None:
        return "it is compiled; record it under `with torch.compiler.set_stance('force_eager')`, or uncompiled"
    return ""


def caveat(module: Any) -> str:
    if FLAT_PARAMETER in module._parameters:
        return (
            "its parameters lie in one flat parameter, so neither they nor their gradients are recorded; make "
            "FullyShardedDataParallel with use_orig_params=True, or use fully_shard"
        )
    in_evaluation = isinstance(module, nn.TransformerEncoderLayer) and not module.training
    if not in_evaluation or not torch.backends.mha.get_fastpath_enabled():
        return ""
    return (
        "evaluated without gradients it would take its fused path, which hooks switch off, so its last bits may "
        "differ from an unwatched run (torch.backends.mha.set_fastpath_enabled(False) makes both the same)"
    )


def _is_compiled_wrapper(module: Any) -> bool:
    # The class lies in a private module that is slow to import; whoever compiled has it.
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")


def on_call(
    module: Any,
    before: Callable[[tuple[Any, ...], dict[str, Any]], None],
    after: Callable[[Any], None],
) -> Undo:
    if module._compiled_call_impl is not None:
        return _around_compiled(module, before, after)
    if isinstance(module, torch.jit.ScriptModule):
        return _around_script(module, before, after)
    hear_before = Hook(lambda _, args, kwargs: before(args, kwargs))
    hear_after = Hook(lambda _, args, kwargs, output: after(output))
    handles = (
        module.register_forward_pre_hook(hear_before, with_kwargs=True),
        # Always called: after an exception too, so that nobody waits for the end of the call.
        module.register_forward_hook(hear_after, with_kwargs=True, always_call=True),
    )

    def undo() -> None:
        for handle in handles:
            handle.remove()
        hear_before.silence()
        hear_after.silence()

    return undo


def _around_compiled(module: Any, before: Callable[..., None], after: Callable[[Any], None]) -> Undo:
    """`module.compile()` has put a compiled call into the module; hooks would become a part of it, or not be heard."""
    return replaced(module, "_compiled_call_impl", _around(module._compiled_call_impl, before, after))


def _around_script(module: Any, before: Callable[..., None], after: Callable[[Any], None]) -> Undo:
    """TorchScript refuses hooks; calls of this very module are told apart on its class."""
    owner = type(module)
    call = owner.__call__

    def instead(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self is not module:
            return call(self, *args, **kwargs)
        before(args, kwargs)
        output = None
        try:
            output = call(self, *args, **kwargs)
        finally:
            after(output)
        return output

    return replaced(owner, "__call__", instead)


def _around(call: Callable[..., Any], before: Callable[..., None], after: Callable[[Any], None]) -> Callable[..., Any]:
    def around(*args: Any, **kwargs: Any) -> Any:
        before(args, kwargs)
        output = None
        try:
            output = call(*args, **kwargs)
        finally:
            after(output)
        return output

    return around


def on_any_call(
    before: Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None],
) -> Undo:
    call = nn.Module.__call__

    def instead(self: Any, *args: Any, **kwargs: Any) -> Any:
        changed = before(self, args, kwargs)
        if changed is not None:
            args, kwargs = changed
        return call(self, *args, **kwargs)

    return replaced(nn.Module, "__call__", instead)


def convert(module: Any, dtype: str) -> None:
    module.to(dtype=getattr(torch, dtype))
