"""Which framework owns a model, and what each framework's file offers.

A framework's file is loaded only when a model of that framework is at hand, so the framework itself is loaded
already; nothing is ever imported for the user. All files have the same functions, drawn here as `Framework`.
"""

import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np

from reprod_log.errors import UsageError
from reprod_log.layers.transform import Array, Shape

# The class that every model of a framework descends from.
_ROOTS = {"torch": ("torch.nn.modules.module", "Module"), "paddle": ("paddle.nn.layer.layers", "Layer")}


@dataclass(frozen=True)
class Kept:
    """A weight that a layer keeps in another form: which form, and over which axis of the stored weight (None: all)."""

    form: str
    axis: int | None


@dataclass(frozen=True)
class Call:
    """One call of a layer: what it got and what it returned, flattened and copied."""

    path: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]

    @cached_property
    def input_digest(self) -> bytes:
        """Equal for calls that got exactly the same values."""
        digest = hashlib.blake2b(digest_size=16)
        for array in self.inputs:
            digest.update(f"{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()


class Framework(Protocol):
    """What a framework's file offers."""

    NAME: str

    def children(self, module: Any) -> list[tuple[str, Any]]:
        """The direct sub-modules by name, in the order of registration."""

    def own_tensors(self, module: Any) -> dict[str, Any]:
        """The module's own parameters and persistent buffers by name."""

    def state_names(self, model: Any) -> dict[str, Any]:
        """Every tensor of the model's state under every name that its own files would have."""

    def is_parameter(self, tensor: Any) -> bool:
        """Whether the tensor is trained, or would be if it were not frozen."""

    def wrapped(self, module: Any) -> Any | None:
        """The model inside a wrapper that only passes calls on (data parallel, say); None if this is no wrapper."""

    def kept_weights(self, module: Any) -> dict[str, Kept]:
        """Weights of the module that are kept in weight norm's or spectral norm's form, by name."""

    def shape(self, tensor: Any) -> Shape:
        """The shape as plain numbers."""

    def dtype(self, tensor: Any) -> str:
        """The dtype's plain name, such as "float32"."""

    def read(self, tensor: Any) -> Array:
        """A copy of the values."""

    def write(self, tensor: Any, array: Array) -> None:
        """Overwrites the values in place; dtype, device and trainability stay."""

    def refresh(self, module: Any) -> None:
        """Recomputes weights that the module derives from what was just written."""

    def read_gradient(self, tensor: Any) -> Array | None:
        """A copy of the gradient, or None."""

    def write_gradient(self, tensor: Any, array: Array | None) -> None:
        """Replaces the gradient."""

    def substituted(self, module: Any, arrays: Mapping[int, Array], dtype: str | None) -> AbstractContextManager[None]:
        """While it lasts, tensors (by `id`) have other values; with a dtype, all floating tensors are of that dtype."""

    def undisturbed(self, module: Any) -> AbstractContextManager[None]:
        """While it lasts: evaluation mode, no gradients, no foreign hooks. All of it and random state are put back."""

    def run(self, module: Any, arguments: Any, keywords: Mapping[str, Any]) -> tuple[Array, ...]:
        """Calls the module with arrays turned into tensors and returns all its output tensors as arrays."""

    def traced(self, modules: Mapping[str, Any], record: Callable[[Call], None]) -> AbstractContextManager[None]:
        """While it lasts, `record` gets every call of the modules, in the order of the calls' ends."""


def framework_of(model: Any) -> Framework:
    """The framework that owns the model, told by the classes it descends from."""
    for name, root in _ROOTS.items():
        for cls in type(model).__mro__:
            if (cls.__module__, cls.__name__) == root:
                return _load(name, cls)
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    raise UsageError(f"Expected a torch.nn.Module or a paddle.nn.Layer, got {kind}.")


def _load(name: str, root: type) -> Framework:
    module = sys.modules.get(name)
    nn = getattr(module, "nn", None)
    if root not in (getattr(nn, "Module", None), getattr(nn, "Layer", None)):
        raise UsageError(
            f"The model is a {name} model, but the module '{name}' of this process is not the one it was made with. If "
            "paddle stands in for torch (paddle.enable_compat()), turn that off with paddle.disable_compat()."
        )
    return cast(Framework, importlib.import_module(f"{__name__}.{name}"))
