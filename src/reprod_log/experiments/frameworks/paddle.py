"""PaddlePaddle."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import paddle

from reprod_log.experiments.frameworks import Hear
from reprod_log.recording import Array


def make_copyable(model: Any) -> None:
    pass  # models of this framework can be copied


def leaf(array: Array) -> Any:
    return paddle.to_tensor(np.array(array), stop_gradient=array.dtype.kind != "f")


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    # Without it the optimizer's learning rate stays float32 and rounds every update.
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        paddle.set_default_dtype(before)


def clear(optimizer: Any) -> None:
    optimizer.clear_grad()


def multiply(tensor: Any, factors: Array) -> Any:
    return tensor * paddle.to_tensor(np.array(factors)).astype(tensor.dtype)


def total(tensor: Any, weights: Array) -> Any:
    return multiply(tensor, weights).sum()


_OPERATIONS = ("add", "sub", "mul", "truediv", "pow", "matmul")
_METHODS = (*(f"__{side}{name}__" for name in _OPERATIONS for side in ("", "r")), "__neg__", "__getitem__")


@contextmanager
def operators(hear: Hear) -> Iterator[None]:
    depth = 0

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth:
                return call(*args, **kwargs)
            depth += 1
            try:
                result = call(*args, **kwargs)
            finally:
                depth -= 1
            if result is not NotImplemented:
                hear(name, (args, kwargs), result)
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
        undo.enter_context(_heard_functions(hear))
        yield


@contextmanager
def _heard_functions(hear: Hear) -> Iterator[None]:
    """While it lasts, every function whose backward pass is written by hand is heard of, with its class."""
    layer = paddle.autograd.PyLayer
    apply = vars(layer.__mro__[1])["apply"]

    def instead(own: type, *args: Any, **kwargs: Any) -> Any:
        result = apply.__get__(None, own)(*args, **kwargs)
        hear(own.__name__, (args, kwargs), result, own)
        return result

    layer.apply = classmethod(instead)
    try:
        yield
    finally:
        del layer.apply
