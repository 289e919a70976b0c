"""The operators that a program calls in PaddlePaddle."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import paddle

from reprod_log.frameworks.contract import OperatorHook

_OPERATIONS = ("add", "sub", "mul", "truediv", "pow", "matmul")
_METHODS = (*(f"__{side}{name}__" for name in _OPERATIONS for side in ("", "r")), "__neg__", "__getitem__")


@contextmanager
def each_operator(call: OperatorHook) -> Iterator[None]:
    depth = 0

    def around(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth:
                return kernel(*args, **kwargs)
            depth += 1
            try:
                result = kernel(*args, **kwargs)
            finally:
                depth -= 1
            if result is not NotImplemented:
                call(name, (args, kwargs), result)
            return result

        return instead

    kernels = {
        id(kernel): around(name, kernel)
        for name, kernel in vars(paddle._C_ops).items()
        if callable(kernel) and not name.startswith("_")
    }
    with ExitStack() as undo:
        # Many functions of paddle keep a reference of their own to a kernel, so it is replaced wherever it stands.
        for module in [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "paddle"]:
            for name, value in list(vars(module).items()):
                if id(value) in kernels and callable(value):
                    undo.callback(setattr, module, name, value)
                    setattr(module, name, kernels[id(value)])
        for name in _METHODS:
            method = getattr(paddle.Tensor, name, None)
            if method is not None:
                undo.callback(setattr, paddle.Tensor, name, method)
                setattr(paddle.Tensor, name, around(name, method))
        undo.enter_context(_functions_by_hand(call))
        yield


@contextmanager
def _functions_by_hand(call: OperatorHook) -> Iterator[None]:
    """While it lasts, `call` is called after every function whose backward pass is written by hand, with its class."""
    layer = paddle.autograd.PyLayer
    apply = vars(layer.__mro__[1])["apply"]

    def instead(own: type, *args: Any, **kwargs: Any) -> Any:
        result = apply.__get__(None, own)(*args, **kwargs)
        call(own.__name__, (args, kwargs), result, own)
        return result

    layer.apply = classmethod(instead)
    try:
        yield
    finally:
        del layer.apply
