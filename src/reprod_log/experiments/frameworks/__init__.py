"""frameworks: the few things a live run needs of a framework beyond watching it; the same functions in each file.

leaf(array) -> tensor             a tensor that collects its own gradient, if it is floating
precision(dtype) -> context       new tensors and variables are of this dtype while it lasts
clear(optimizer) -> None          forget all gradients
multiply(tensor, factors) -> tensor   element by element, with gradient
total(tensor, weights) -> tensor  the sum of tensor × weights as a scalar
make_copyable(model) -> None      what keeps a model from being copied is put in a form that can be
operators(hear) -> context        while it lasts, hear(name, arguments, result) is called after every operator, and with
                                  its class after every function whose backward pass is written by hand
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Protocol, cast

from reprod_log.recording import Array


class Hear(Protocol):
    """Hears of one operator: its name, everything it was given, what it gave, its class if it was written by hand."""

    def __call__(self, name: str, given: Any, result: Any, function: type | None = None) -> None: ...


class Hands(Protocol):
    """What each file offers."""

    def leaf(self, array: Array) -> Any: ...

    def precision(self, dtype: str) -> Any: ...

    def clear(self, optimizer: Any) -> None: ...

    def multiply(self, tensor: Any, factors: Array) -> Any: ...

    def total(self, tensor: Any, weights: Array) -> Any: ...

    def make_copyable(self, model: Any) -> None: ...

    def operators(self, hear: Hear) -> AbstractContextManager[None]: ...


def hands_of(name: str) -> Hands:
    """The file of the framework of this name, which is loaded already."""
    return cast(Hands, import_module(f"{__name__}.{name}"))
