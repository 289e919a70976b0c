"""Model: what the core asks of a library of JAX: arrays and modules by path, and calls inside a traced function."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import ModuleFacts, StateFacts, plain_settings
from reprod_log.frameworks.jax.taps import Taps
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.side import Scope
from reprod_log.frameworks.values import each, module_facts, written_padding
from reprod_log.recording import Array

_LIBRARIES = {
    "nnx": ("flax.nnx", "NnxModel"),
    "linen": ("flax.linen", "LinenModel"),
    "equinox": ("equinox", "EquinoxModel"),
    "haiku": ("haiku", "HaikuModel"),
}
"""Our file, the module that its users import, and the class that takes their models in."""
_STATES = {"mu": "exp_avg", "nu": "exp_avg_sq", "trace": "momentum_buffer"}
"""What optax keeps for each parameter, with the canonical names."""
_NATIVE = {"stride": ("strides", "stride"), "dilation": ("kernel_dilation", "dilation"), "padding": ("padding",),
           "groups": ("feature_group_count", "groups"), "kernel_size": ("kernel_size", "kernel_shape")}  # fmt: skip
"""What the libraries call the settings of a convolution, by the words that frameworks share."""


@dataclass(frozen=True)
class Leaf:
    """One array of a model's state."""

    path: str
    trained: bool
    recorded: bool
    """False for keys and counters of random numbers."""
    shape: tuple[int, ...]
    dtype: str


class Started(ABC):
    """A model put together inside a traced function."""

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    @abstractmethod
    def listening(self, taps: Taps) -> AbstractContextManager[Any]:
        """While it lasts, calls of modules go through the taps."""

    @abstractmethod
    def part(self, path: str) -> Callable[..., Any]:
        """The module at this path, to be called alone."""

    @abstractmethod
    def after(self) -> Mapping[str, Any]:
        """The arrays that calls have changed, by path."""


class Model(ABC):
    """A model of one library, with what of its modules is known."""

    package: str
    """The library's top-level module: the name of its column in the tables of layers."""
    channels_last = True
    """Whether its convolutions have their channels last."""
    arrays: Mapping[str, Any]
    """Every array of its state by path."""
    leaves: tuple[Leaf, ...]

    @abstractmethod
    def modules(self) -> Mapping[str, Any]:
        """The modules by path, each before those inside it; None for one of which only a call will tell more."""

    @abstractmethod
    def start(self, arrays: Mapping[str, Any], scope: Scope) -> Started:
        """The model with these arrays and as the scope wants it."""

    @abstractmethod
    def given(self, arrays: Mapping[str, Any]) -> Any:
        """The model with these arrays, in the form in which the library's users have it."""

    def built(self, modules: Mapping[str, Any]) -> Model:
        """The model with the modules that a call has shown."""
        return self

    def like(self, given: Any) -> Model:
        """Another model with the same modules."""
        return type(self)(given)  # type: ignore[call-arg]  # each takes what it gives

    def facts(self) -> tuple[ModuleFacts, ...]:
        modules = self.modules()
        images = {path for path, one in modules.items() if _dimensions(one)} if self.channels_last else set()

        def settings(path: str, module: Any) -> dict[str, Any]:
            found = settings_of(module)
            if any(not path or other.startswith(f"{path}.") for other in images - {path}):
                # Channels are last in these convolutions, and so they are in what goes between them.
                found.setdefault("data_format", "NHWC")
            return found

        tensors = {
            leaf.path: StateFacts(leaf.shape, leaf.dtype, leaf.trained, leaf.path)
            for leaf in self.leaves
            if leaf.recorded
        }
        return module_facts(modules, tensors, self._classes, settings)

    def _classes(self, module: Any, inside: Mapping[str, StateFacts]) -> tuple[str, ...]:
        if module is None:
            return (f"{self.package}.{_guessed(inside)}",)
        classes = tuple(f"{one.__module__}.{one.__name__}" for one in type(module).__mro__)
        ranked = self._with_rank(module)
        return classes if ranked is None else (f"{self.package}.{ranked}", *classes)

    def _with_rank(self, module: Any) -> str | None:
        """A name for a convolution that tells its number of dimensions, as the table of layers wants it."""
        size = _dimensions(module)
        if size is None:
            return None
        name = "ConvTranspose" if "Transpose" in type(module).__name__ else "Conv"
        # A transposed convolution may mirror its kernel, which is another layout.
        return f"{name}{size}d" if getattr(module, "transpose_kernel", True) else f"mirrored.{name}{size}d"


def model_of(given: Any) -> Model | None:
    """The model as the core knows it; None when no library owns it."""
    if isinstance(given, Model):
        return given
    for name, (needed, wrapper) in _LIBRARIES.items():
        if needed in sys.modules:
            library = import_module(f"{__package__}.{name}")
            if library.owns(given):
                made: Model = getattr(library, wrapper)(given)
                return made
    return None


def owned(given: Any) -> Model:
    """The model; UsageError when there is none, or several by name."""
    found = model_of(given)
    if found is None:
        raise UsageError(
            "several models of JAX by name cannot be run together; compare them one by one"
            if isinstance(given, dict)
            else f"a {type(given).__name__} is not a model of Flax, Equinox or Haiku"
        )
    return found


def leaf_of(path: str, value: Any, *, trained: bool) -> Leaf:
    random = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    return Leaf(path, trained and not random, not random, tuple(value.shape), str(value.dtype))


def tree_leaves(tree: Any, front: str = "") -> Iterator[tuple[str, Any]]:
    """Every array of nested mappings under its dotted path."""
    if isinstance(tree, Mapping):
        for name, one in tree.items():
            yield from tree_leaves(one, join(front, str(name).replace("/~/", ".").replace("/", ".")))
    elif tree is not None:
        yield front, tree


def tree_with(tree: Any, arrays: Mapping[str, Any], front: str = "") -> Any:
    """The same nested mappings with other arrays."""
    if isinstance(tree, Mapping):
        names = {name: join(front, str(name).replace("/~/", ".").replace("/", ".")) for name in tree}
        return {name: tree_with(one, arrays, names[name]) for name, one in tree.items()}
    return arrays.get(front, tree)


def prefixes(paths: Sequence[str]) -> dict[str, Any]:
    """The paths of all modules that hold these arrays, each before those inside it."""
    found: dict[str, Any] = {"": None}
    for path in paths:
        parts = path.split(".")[:-1]
        found |= {".".join(parts[: end + 1]): None for end in range(len(parts))}
    return found


def to_array(value: Any) -> Array:
    return np.array(jax.random.key_data(value) if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key) else value)


def _guessed(inside: Mapping[str, StateFacts]) -> str:
    """The class of a layer of which only the names and shapes of its arrays are known."""
    kernel = next((inside[name].shape for name in ("kernel", "w") if name in inside), None)
    if kernel is not None:
        return {2: "Linear", 3: "Conv1d", 4: "Conv2d", 5: "Conv3d"}.get(len(kernel), "Module")
    if "embedding" in inside or "embeddings" in inside:
        return "Embed"
    if {"mean", "var"} & set(inside):
        return "BatchNorm"
    if "scale" in inside and all("." not in name for name in inside):
        return "LayerNorm" if {"bias", "offset"} & set(inside) else "RMSNorm"
    return "Module"


def kept_by(state: Any) -> Iterator[tuple[str, str, Any]]:
    """What an optimizer of optax keeps for each parameter, by path and canonical name."""
    for one in jax.tree.leaves(state, is_leaf=lambda node: bool(set(getattr(node, "_fields", ())) & set(_STATES))):
        for name in getattr(one, "_fields", ()):
            if name in _STATES:
                for path, array in flatten(getattr(one, name)):
                    yield path, _STATES[name], array.get_value() if hasattr(array, "get_value") else array


# ---- settings -------------------------------------------------------------------------------------------------------


def _native(module: Any, word: str) -> str | None:
    return next((name for name in _NATIVE.get(word, ()) if hasattr(module, name)), None)


def _dimensions(module: Any) -> int | None:
    """The number of dimensions of a convolution; None for any other module."""
    if module is None or "Conv" not in type(module).__name__ or _native(module, "groups") is None:
        return None
    size = getattr(module, _native(module, "kernel_size") or "", None)
    return len(size) if isinstance(size, Sequence) else 1


def settings_of(module: Any) -> dict[str, Any]:
    """Plain attributes; those of a convolution under the words that frameworks share, because their forms differ."""
    if module is None:
        return {}
    settings = plain_settings(module)
    size = _dimensions(module)
    if size is not None:
        has = {word: getattr(module, name) for word in _NATIVE if (name := _native(module, word)) is not None}
        settings |= {word: each(has.get(word) or 1, size) for word in ("kernel_size", "stride", "dilation")}
        settings["groups"] = has["groups"]
        settings["padding"] = written_padding(
            has["padding"],
            settings["kernel_size"],
            settings["stride"],
            settings["dilation"],
            fixed="Transpose" not in type(module).__name__,
        )
    return settings


def set_setting(module: Any, name: str, value: Any) -> None:
    """Give a module of a started model another setting, under a shared word or its own."""
    native = _native(module, name) or name
    if not hasattr(module, native):
        raise UsageError(f"{type(module).__name__} has no setting {name!r} that can be changed")
    if native == "padding" and isinstance(value, (list, tuple)):
        value = tuple((int(one), int(one)) for one in value)
    elif isinstance(value, list):
        value = tuple(value)
    # Past the refusal of classes whose objects do not change: a started model is nobody else's.
    object.__setattr__(module, native, value)


def widened_fields(module: Any) -> dict[str, Any]:
    """The fields that name a floating type, each with float64: layers that were made for one type keep it."""
    return {
        name: jnp.float64
        for name in ("dtype", "param_dtype")
        if (kept := vars(module).get(name)) is not None and jnp.issubdtype(kept, jnp.floating)
    }
