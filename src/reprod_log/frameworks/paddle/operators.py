"""The operators that a program calls in PaddlePaddle."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import paddle

from reprod_log.frameworks.contract import KernelHook, OperatorHook
from reprod_log.frameworks.hooked import Hooked

_OPERATIONS = ("add", "sub", "mul", "truediv", "pow", "matmul")
_METHODS = (*(f"__{side}{name}__" for name in _OPERATIONS for side in ("", "r")), "__neg__", "__getitem__")
_COMPARISONS = tuple(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_MORE_METHODS = (
    *(f"__{side}{name}__" for name in ("div", "floordiv", "mod", "and", "or") for side in ("", "r")),
    *_COMPARISONS, "__xor__", "__invert__", "__setitem__", "_setitem_dygraph", "_getitem_dygraph", "clone",
    "contiguous", "copy_", "_inplace_assign",
)  # fmt: skip
"""Besides: what belongs to the graph of a whole model."""
_WRITING = ("__setitem__", "_setitem_dygraph", "copy_", "_inplace_assign")
_NARROW = (paddle.float32, paddle.float16, paddle.bfloat16)


class PaddleOperators(Hooked):
    optional = frozenset(("operators",))

    @contextmanager
    def each_operator(self, call: OperatorHook) -> Iterator[None]:
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
                    call(name, _held((args, kwargs)), _held(result), kernel)
                return result

            return instead

        with ExitStack() as undo:
            undo.enter_context(_replaced(around, _METHODS))
            undo.enter_context(_functions_by_hand(call))
            yield

    @contextmanager
    def each_kernel(self, call: KernelHook, *, gradients: bool = False) -> Iterator[None]:
        depth = 0

        def around(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
            written = (0,) if name in _WRITING or (name.endswith("_") and not name.startswith("__")) else ()
            pure = _pure(kernel, written)

            def instead(*args: Any, **kwargs: Any) -> Any:
                nonlocal depth
                if depth:
                    return kernel(*args, **kwargs)
                args, kwargs = _wide(args), {name: _wide(one) for name, one in kwargs.items()}

                def run() -> Any:
                    nonlocal depth
                    depth += 1
                    try:
                        return kernel(*args, **kwargs)
                    finally:
                        depth -= 1

                return call(name, pure, (args, kwargs), written, run)

            return instead

        with paddle.set_grad_enabled(gradients), _replaced(around, (*_METHODS, *_MORE_METHODS)):
            yield


def _held(value: Any) -> Any:
    """The value without tensors that have no memory: a recurrent kernel takes and gives a state that it may not use."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_held, value))
    if isinstance(value, dict):
        return {name: _held(one) for name, one in value.items()}
    return None if isinstance(value, paddle.Tensor) and not value._is_initialized() else value


@contextmanager
def _functions_by_hand(call: OperatorHook) -> Iterator[None]:
    """While it lasts, `call` is called after every function whose backward pass is written by hand, with its class."""
    layer = paddle.autograd.PyLayer
    apply = vars(layer.__mro__[1])["apply"]

    def instead(own: Any, *args: Any, **kwargs: Any) -> Any:
        result = apply.__get__(None, own)(*args, **kwargs)
        call(own.__name__, (args, kwargs), result, own.apply, own)
        return result

    layer.apply = classmethod(instead)
    try:
        yield
    finally:
        del layer.apply


@contextmanager
def widened_casts() -> Iterator[None]:
    """While it lasts, conversions to float32 give float64, and gradients of float64 can be clipped by their norm."""

    def around(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        if name == "clip_by_norm":
            return lambda x, most: _clipped(x, most) if x.dtype == paddle.float64 else kernel(x, most)
        return lambda x, dtype, *more: kernel(x, paddle.float64 if dtype == paddle.float32 else dtype, *more)

    with _replaced(around, (), ("cast", "cast_", "clip_by_norm")):
        yield


def _clipped(x: Any, most: float) -> Any:
    """What `clip_by_norm` does, which has no kernel for float64 on every device."""
    norm = float(paddle.linalg.norm(x))
    return x * (most / norm) if norm > most else x


@contextmanager
def _replaced(
    around: Callable[[str, Callable[..., Any]], Callable[..., Any]],
    methods: tuple[str, ...],
    only: tuple[str, ...] | None = None,
) -> Iterator[None]:
    """While it lasts, every kernel, or those named, and these methods of tensors are wrapped."""
    # Those that are named are called in today's way only.
    chosen = _kernels(paddle._C_ops, *(() if only else (paddle._legacy_C_ops,)))
    kernels = {id(kernel): around(name, kernel) for name, kernel in chosen if only is None or name in only}
    with ExitStack() as undo:
        for module, name in _places_of_kernels(frozenset(one for one in sys.modules if one.startswith("paddle"))):
            value = vars(module).get(name)
            if id(value) in kernels:
                undo.callback(setattr, module, name, value)
                setattr(module, name, kernels[id(value)])
        for name in methods:
            method = getattr(paddle.Tensor, name, None)
            if method is not None:
                undo.callback(setattr, paddle.Tensor, name, method)
                setattr(paddle.Tensor, name, around(name, method))
        yield


def _kernels(*modules: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The kernels of these modules; activations inside of layers (`act="relu"`) are called in the older way."""
    for module in modules:
        for name, kernel in vars(module).items():
            if callable(kernel) and not name.startswith("_"):
                yield name, kernel


@cache
def _places_of_kernels(loaded: frozenset[str]) -> tuple[tuple[ModuleType, str], ...]:
    """Where kernels stand: many functions of paddle keep a reference of their own to one.

    Looking takes as long as a small model runs, so it is done again only when more modules of paddle are loaded.
    """
    kernels = {id(kernel) for _, kernel in _kernels(paddle._C_ops, paddle._legacy_C_ops)}
    modules = [sys.modules[name] for name in loaded if name.partition(".")[0] == "paddle"]
    return tuple((one, name) for one in modules for name, value in list(vars(one).items()) if id(value) in kernels)


def _wide(given: Any) -> Any:
    """Arguments in which no floating type is narrower than float64."""
    if isinstance(given, tuple):
        return tuple(paddle.float64 if isinstance(one, paddle.dtype) and one in _NARROW else one for one in given)
    return paddle.float64 if isinstance(given, paddle.dtype) and given in _NARROW else given


def _pure(kernel: Callable[..., Any], written: tuple[int, ...]) -> Callable[..., Any]:
    def instead(*args: Any, **kwargs: Any) -> Any:
        copies = tuple(one.clone() if place in written else one for place, one in enumerate(args))
        with paddle.no_grad():
            result = kernel(*copies, **kwargs)
        return copies[0] if result is None and written else result

    return instead
