"""The operators that a program calls in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from reprod_log.frameworks.contract import OperatorHook


@contextmanager
def each_operator(call: OperatorHook) -> Iterator[None]:
    class Listener(TorchFunctionMode):  # type: ignore[misc]  # torch is not looked into by mypy
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            call(getattr(function, "__name__", str(function)), (args, kwargs or {}), result)
            return result

    function = torch.autograd.Function
    apply = vars(function)["apply"]

    def instead(own: type, *args: Any, **kwargs: Any) -> Any:
        result = apply.__func__(own, *args, **kwargs)
        call(own.__name__, (args, kwargs), result, own)
        return result

    function.apply = classmethod(instead)
    try:
        with Listener():
            yield
    finally:
        function.apply = apply
