"""PyTorch modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from reprod_log.frameworks.contract import KeptForm, OwnTensor
from reprod_log.frameworks.hooks import plain_setting
from reprod_log.frameworks.torch.distributed import FLAT_PARAMETER, is_first_fsdp

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_COUNTER = "num_batches_tracked"
"""A count of batches that only torch keeps, and uses only for a momentum of None."""


def is_module(thing: object) -> bool:
    return isinstance(thing, nn.Module)


def children(module: Any) -> list[tuple[str, Any]]:
    # `named_children` leaves out a child that stands under two names.
    return [(name, child) for name, child in module._modules.items() if child is not None]


def own(module: Any) -> list[OwnTensor]:
    found = [
        OwnTensor(name, tensor, trained=True, has_values=_has_values(tensor))
        for name, tensor in module._parameters.items()
        if tensor is not None and name != FLAT_PARAMETER
    ]
    if module._buffers:
        volatile = module._non_persistent_buffers_set
        found += [
            OwnTensor(name, tensor, False, name not in volatile, name == _COUNTER, _has_values(tensor))
            for name, tensor in module._buffers.items()
            if tensor is not None
        ]
    return found


def _has_values(tensor: Any) -> bool:
    return not isinstance(tensor, nn.parameter.UninitializedTensorMixin)


def state_names(model: Any) -> dict[str, Any]:
    return dict(model.state_dict(keep_vars=True))


def settings(module: Any) -> dict[str, Any]:
    inherited = vars(nn.Module())
    found = {}
    for name, value in vars(module).items():
        plain = plain_setting(value)
        if plain is not None and name not in inherited:
            found[name.lstrip("_")] = plain
    return found


def set_setting(module: Any, name: str, value: Any) -> None:
    for attribute in (name, f"_{name}"):
        if attribute in vars(module):
            kept = vars(module)[attribute]
            setattr(module, attribute, type(kept)(value) if isinstance(kept, (tuple, list)) else value)


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
        return "word.opaque.script"
    if _is_compiled_wrapper(module) or module._compiled_call_impl is not None:
        return "word.opaque.compiled"
    return ""


def caveat(module: Any) -> str:
    if FLAT_PARAMETER in module._parameters:
        return "note.capture.flat_parameter"
    in_evaluation = isinstance(module, nn.TransformerEncoderLayer) and not module.training
    if not in_evaluation or not torch.backends.mha.get_fastpath_enabled():
        return ""
    return "note.capture.fused_path"


def _is_compiled_wrapper(module: Any) -> bool:
    # The class lies in a private module that is slow to import; whoever compiled has it.
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")


def kept_weights(module: Any) -> dict[str, KeptForm]:
    kept: dict[str, KeptForm] = {}
    for hook in _norm_hooks(module):
        kept[hook.name] = KeptForm(type(hook).__name__, _axis(hook.dim))  # type: ignore[arg-type]  # one of the two
    for name, chain in getattr(module, "parametrizations", {}).items():
        form = type(chain[0]).__name__.lstrip("_")
        if form in ("WeightNorm", "SpectralNorm") and len(chain) == 1:
            kept[name] = KeptForm(form, _axis(chain[0].dim))  # type: ignore[arg-type]  # checked above
    return kept


def _norm_hooks(module: Any) -> list[Any]:
    """The hooks by which the older weight_norm and spectral_norm compute a weight before each call."""
    hooks = module._forward_pre_hooks.values()
    norms = ("WeightNorm", "SpectralNorm")
    return [one for one in hooks if type(one).__name__ in norms and type(one).__module__.startswith("torch.")]


def _axis(dim: int | None) -> int | None:
    # The parametrization says "all axes" as -1, the hook as None.
    return None if dim is None or dim == -1 else int(dim)


def refresh(module: Any) -> None:
    for hook in _norm_hooks(module):
        options = {"do_power_iteration": False} if type(hook).__name__ == "SpectralNorm" else {}
        setattr(module, hook.name, hook.compute_weight(module, **options))


def convert(module: Any, dtype: str) -> None:
    module.to(dtype=getattr(torch, dtype))


def make_copyable(model: Any) -> None:
    # The older weight_norm keeps the weight it computed as an attribute with a graph, which torch does not copy; it is
    # computed anew at every call.
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                setattr(module, name, value.detach())


def stores(module: Any) -> Iterator[dict[str, Any] | list[Any]]:
    yield module._parameters
    yield module._buffers
    flat = vars(module).get("_flat_weights")
    if flat is not None:
        yield flat


def hook_stores(module: Any) -> Iterator[dict[Any, Any]]:
    yield module._forward_pre_hooks
    yield module._forward_hooks


@contextmanager
def quiet(model: Any) -> Iterator[None]:
    with ExitStack() as undo:
        undo.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        # The fused path of an encoder layer calls none of the layers inside it.
        torch.backends.mha.set_fastpath_enabled(False)
        if any(type(part).__name__ == "OptimizedModule" for part in model.modules()):
            # Compiled code does not call hooks that came after it.
            undo.enter_context(torch.compiler.set_stance("force_eager"))
        for part in model.modules():
            undo.callback(setattr, part, "training", part.training)
            part.training = False
        undo.enter_context(torch.no_grad())
        yield
