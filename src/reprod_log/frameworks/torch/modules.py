"""PyTorch modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import OwnTensor, Rounding, Scheme, plain_settings
from reprod_log.frameworks.hooked import Hooked, evaluation_mode
from reprod_log.frameworks.torch import quantised
from reprod_log.frameworks.torch.distributed import FLAT_PARAMETER, is_first_fsdp

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_COUNTER = "num_batches_tracked"
"""A count of batches that only torch keeps, and uses only for a momentum of None."""


class TorchModules(Hooked):
    package = "torch"
    module_class = nn.Module
    flat_weights = "_flat_weights"
    hook_attributes = ("_forward_pre_hooks", "_forward_hooks")

    def children(self, module: Any) -> list[tuple[str, Any]]:
        # `named_children` omits a child that has two names.
        return [(name, child) for name, child in module._modules.items() if child is not None]

    def own(self, module: Any) -> list[OwnTensor]:
        found = [
            OwnTensor(name, quantised.as_read(module, name, tensor), trained=True, has_values=_has_values(tensor))
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

    def state_names(self, model: Any) -> dict[str, Any]:
        return dict(model.state_dict(keep_vars=True))

    def settings(self, module: Any) -> dict[str, Any]:
        return plain_settings(module, vars(nn.Module()))

    def wrapped(self, module: Any) -> Any | None:
        if isinstance(module, _WRAPPERS) or is_first_fsdp(module):
            return module.module
        if _is_compiled_wrapper(module):
            return module._orig_mod
        return None

    def opaque(self, module: Any) -> str:
        if isinstance(module, torch.jit.ScriptModule):
            return "word.opaque.script"
        if _is_compiled_wrapper(module) or module._compiled_call_impl is not None:
            return "word.opaque.compiled"
        return ""

    def caveat(self, module: Any) -> str:
        if FLAT_PARAMETER in module._parameters:
            return "note.capture.flat_parameter"
        in_evaluation = isinstance(module, nn.TransformerEncoderLayer) and not module.training
        if not in_evaluation or not torch.backends.mha.get_fastpath_enabled():
            return ""
        return "note.capture.fused_path"

    def kept_norms(self, module: Any) -> list[tuple[str, Any]]:
        chains = getattr(module, "parametrizations", {}).items()
        return [*super().kept_norms(module), *((name, chain[0]) for name, chain in chains if len(chain) == 1)]

    def convert(self, module: Any, dtype: str) -> None:
        module.to(dtype=getattr(torch, dtype))

    def make_copyable(self, model: Any) -> None:
        # The older weight_norm keeps the weight it computed as an attribute with a graph, which torch does not copy;
        # it is computed again at every call.
        for path, module in model.named_modules():
            if module._compiled_call_impl is not None:
                raise UsageError(
                    f"{path or 'the model'} ({type(module).__name__}) was compiled in place by its method compile(), "
                    "and copies of it, on which everything here is run, would run uncompiled. Compile the model with "
                    "torch.compile(model) and give what that returns"
                )
            for name, value in list(vars(module).items()):
                if isinstance(value, torch.Tensor) and not value.is_leaf:
                    setattr(module, name, value.detach())

    def readable(self, model: Any, call: Callable[[Any], Any]) -> Any | None:
        return quantised.readable(model, call)

    def schemes(self, model: Any) -> dict[str, Scheme]:
        return quantised.schemes(model)

    def set_rounding(self, model: Any, rounding: Rounding) -> None:
        quantised.set_rounding(model, rounding)

    @contextmanager
    def quiet(self, model: Any) -> Iterator[None]:
        with ExitStack() as undo:
            undo.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
            # The fused path of an encoder layer calls none of the layers inside it.
            torch.backends.mha.set_fastpath_enabled(False)
            undo.enter_context(self.uncompiled())
            undo.enter_context(evaluation_mode(model.modules()))
            undo.enter_context(torch.no_grad())
            yield


def _has_values(tensor: Any) -> bool:
    return not isinstance(tensor, nn.parameter.UninitializedTensorMixin)


def _is_compiled_wrapper(module: Any) -> bool:
    # The class lies in a private module that is slow to import; a program that compiled has imported it.
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")
