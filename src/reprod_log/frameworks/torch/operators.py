"""The operators that a program calls in PyTorch, and narrow types emulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from reprod_log.frameworks.contract import KernelHook, OperatorHook
from reprod_log.frameworks.hooked import Hooked

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_WRITES_SILENTLY = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
"""Kernels that write into their arguments (running statistics) without their schema saying so."""


class TorchOperators(Hooked):
    optional = frozenset(("operators", "emulate"))

    @contextmanager
    def each_operator(self, call: OperatorHook) -> Iterator[None]:
        class Listener(TorchFunctionMode):  # type: ignore[misc]  # torch is not looked into by mypy
            def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = function(*args, **(kwargs or {}))
                call(getattr(function, "__name__", str(function)), (args, kwargs or {}), result, function)
                return result

        function = torch.autograd.Function
        apply = vars(function)["apply"]

        def instead(own: Any, *args: Any, **kwargs: Any) -> Any:
            result = apply.__func__(own, *args, **kwargs)
            call(own.__name__, (args, kwargs), result, own.apply, own)
            return result

        function.apply = classmethod(instead)
        try:
            with Listener():
                yield
        finally:
            function.apply = apply

    @contextmanager
    def each_kernel(self, call: KernelHook, *, gradients: bool = False) -> Iterator[None]:
        # Below the functions of torch, where a fused layer (attention, a recurrent layer) shows its kernels.

        class Listener(TorchDispatchMode):  # type: ignore[misc]  # torch is not looked into by mypy
            def __torch_dispatch__(self, kernel: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                kwargs = {name: torch.float64 if one in _NARROW else one for name, one in (kwargs or {}).items()}
                written = _written(kernel)
                name = str(kernel.overloadpacket.__name__)
                return call(name, _pure(kernel, written), (args, kwargs), written, lambda: kernel(*args, **kwargs))

        with torch.set_grad_enabled(gradients), sdpa_kernel(SDPBackend.MATH), Listener():
            yield

    def emulated(self, dtype: str) -> AbstractContextManager[None]:
        return _Emulation(getattr(torch, dtype))

    def autocast(self, dtype: str) -> AbstractContextManager[None]:
        return torch.autocast("cpu", dtype=getattr(torch, dtype))  # type: ignore[no-any-return]  # not looked into


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


class _Emulation(TorchDispatchMode):  # type: ignore[misc]  # torch is not looked into by mypy
    """A floating type narrower than float32: every kernel computes in float32 and rounds its result.

    The types flow as they do natively, so that code which widens to float32 by itself (a norm, a softmax) keeps its
    precision here, too; what is taken away is the choice of kernel. The error that is left is that of the type.
    """

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype
        self._kinds: dict[Any, list[Any] | None] = {}

    def __torch_dispatch__(self, kernel: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves, _ = tree_flatten((args, kwargs))
        narrow = [one for one in leaves if isinstance(one, torch.Tensor) and one.dtype == self.dtype]
        if not narrow or kernel.is_view or _only_moves(kernel):
            return kernel(*args, **kwargs)
        wanted = self._results(kernel, args, kwargs, leaves)
        if wanted is None or self.dtype not in wanted:
            return kernel(*args, **kwargs)
        widened: dict[int, Any] = {}
        wide_args, wide_kwargs = tree_map(lambda leaf: self._widened(leaf, widened), (args, kwargs))
        result = kernel(*wide_args, **wide_kwargs)
        if kernel._schema.is_mutable or kernel.overloadpacket.__name__ in _WRITES_SILENTLY:
            for one in narrow:
                one.copy_(widened[id(one)])
        owners = {id(wide): one for one in narrow if (wide := widened[id(one)]) is not None}
        return self._narrowed(result, wanted, owners)

    def _widened(self, leaf: Any, known: dict[int, Any]) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dtype == self.dtype:
            if id(leaf) not in known:
                known[id(leaf)] = leaf.to(torch.float32)
            return known[id(leaf)]
        return torch.float32 if leaf is self.dtype else leaf

    def _narrowed(self, result: Any, wanted: list[Any], owners: dict[int, Any]) -> Any:
        """The result in the types that the kernel gives natively; what was written into is what was given."""
        kinds = iter(wanted)

        def narrowed(leaf: Any) -> Any:
            kind = next(kinds)
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return owners[id(leaf)] if id(leaf) in owners else leaf.to(kind)

        return tree_map(narrowed, result)

    def _results(self, kernel: Any, args: Any, kwargs: Any, leaves: list[Any]) -> list[Any] | None:
        """The types of the kernel's results, natively: asked of it once, on tensors without values."""
        key = (kernel, tuple((one.dtype, one.dim()) if isinstance(one, torch.Tensor) else _kind(one) for one in leaves))
        if key not in self._kinds:
            try:
                empty = tree_map(lambda one: one.to("meta") if isinstance(one, torch.Tensor) else one, (args, kwargs))
                found, _ = tree_flatten(kernel(*empty[0], **empty[1]))
                self._kinds[key] = [getattr(one, "dtype", None) for one in found]
            except (RuntimeError, NotImplementedError, TypeError):
                self._kinds[key] = None  # its shape depends on values (a selection): nothing is computed
        return self._kinds[key]


def _kind(leaf: Any) -> Any:
    return leaf if isinstance(leaf, (torch.dtype, type(None))) else type(leaf)


def _only_moves(kernel: Any) -> bool:
    """Copies and conversions: they round by themselves where they have to."""
    return kernel.overloadpacket.__name__ in ("_to_copy", "copy_", "clone", "lift_fresh", "detach", "_unsafe_view")
