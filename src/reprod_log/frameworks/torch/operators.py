"""The operators that a program calls in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from reprod_log.frameworks.contract import KernelHook, OperatorHook

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


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


@contextmanager
def each_kernel(call: KernelHook, *, gradients: bool = False) -> Iterator[None]:
    """Below the functions of torch, where a fused layer (attention, a recurrent layer) is recorded kernel by kernel."""

    class Listener(TorchDispatchMode):  # type: ignore[misc]  # torch is not looked into by mypy
        def __torch_dispatch__(self, kernel: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = {name: torch.float64 if one in _NARROW else one for name, one in (kwargs or {}).items()}
            written = _written(kernel)
            name = str(kernel.overloadpacket.__name__)
            return call(name, _pure(kernel, written), (args, kwargs), written, lambda: kernel(*args, **kwargs))

    with torch.set_grad_enabled(gradients), sdpa_kernel(SDPBackend.MATH), Listener():
        yield


@cache
def _written(kernel: Any) -> tuple[int, ...]:
    """The places of the arguments that it writes into."""
    arguments = kernel._schema.arguments
    return tuple(place for place, one in enumerate(arguments) if one.alias_info is not None and one.alias_info.is_write)


def _pure(kernel: Any, written: tuple[int, ...]) -> Callable[..., Any]:
    if not written:
        return kernel  # type: ignore[no-any-return]

    def instead(*args: Any, **kwargs: Any) -> Any:
        copies = [
            one.clone() if place in written and isinstance(one, torch.Tensor) else one for place, one in enumerate(args)
        ]
        with torch.no_grad():
            return kernel(*copies, **kwargs)

    return instead
