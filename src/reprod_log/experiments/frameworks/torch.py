"""PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from reprod_log.experiments.frameworks import Hear
from reprod_log.recording import Array


def make_copyable(model: Any) -> None:
    # The older weight_norm keeps the weight it computed as an attribute with a graph, which torch does not copy; it is
    # computed anew at every call.
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                setattr(module, name, value.detach())


def leaf(array: Array) -> Any:
    tensor = torch.from_numpy(np.array(array))
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def clear(optimizer: Any) -> None:
    optimizer.zero_grad()


def multiply(tensor: Any, factors: Array) -> Any:
    return tensor * torch.from_numpy(np.array(factors)).to(tensor)


def total(tensor: Any, weights: Array) -> Any:
    return multiply(tensor, weights).sum()


@contextmanager
def operators(hear: Hear) -> Iterator[None]:
    class Listener(TorchFunctionMode):  # type: ignore[misc]  # torch is not looked into by mypy
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            hear(getattr(function, "__name__", str(function)), (args, kwargs or {}), result)
            return result

    function = torch.autograd.Function
    apply = vars(function)["apply"]

    def instead(own: type, *args: Any, **kwargs: Any) -> Any:
        result = apply.__func__(own, *args, **kwargs)
        hear(own.__name__, (args, kwargs), result, own)
        return result

    function.apply = classmethod(instead)
    try:
        with Listener():
            yield
    finally:
        function.apply = apply
