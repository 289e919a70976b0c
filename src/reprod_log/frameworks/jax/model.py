"""What the libraries of JAX have in common: who owns a model, trees of arrays, settings, what optax keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reprod_log.errors import UsageError
from reprod_log.frameworks import is_imported
from reprod_log.frameworks.contract import ModuleFacts, StateFacts, plain_settings
from reprod_log.frameworks.hooks import subclasses
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.trees import Leaf, Model, Taps, replacement
from reprod_log.frameworks.values import Channels, each, module_facts, written_padding
from reprod_log.layers.lookup import column_of
from reprod_log.recording import Array, ModuleInfo

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


class JaxModel(Model):
    """A model of one library."""

    channels_last = True
    """Whether its convolutions have their channels last."""

    @abstractmethod
    def given(self, arrays: Mapping[str, Any]) -> Any:
        """The model with these arrays, in the form in which the library's users have it."""

    def like(self, given: Any) -> JaxModel:
        """Another model with the same modules."""
        return type(self)(given)  # type: ignore[call-arg]  # each takes what it gives

    @property
    def to_train(self) -> Any:
        return self.given(self.arrays)

    @property
    def has_images_last(self) -> bool:
        return self.channels_last and any(map(_dimensions, self.modules().values()))

    def channels(self, module: ModuleInfo) -> Channels:
        column = column_of(module)
        last = column is not None and column.channels_last(module.settings)
        return Channels(lambda axes: last and axes >= 3)

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


class Calls(ABC):
    """How the calls of one library's modules are heard, in a run of ours and in a program of the user's own."""

    @abstractmethod
    def heard(self, instead: Callable[..., Any]) -> AbstractContextManager[Any]:
        """While it lasts, calls of modules go to instead(module, original, args, kwargs)."""

    @abstractmethod
    def model(self, module: Any) -> JaxModel | None:
        """The model of an outermost call; None when it is not to be recorded."""

    @abstractmethod
    def path(self, module: Any) -> str | None:
        """Where it stands in the model that is called; None when it is not a part of it."""

    def within(self, module: Any) -> AbstractContextManager[Any]:
        """While it lasts, this is the model that is called."""
        return nullcontext()

    @contextmanager
    def through(self, taps: Taps, model: Any) -> Iterator[None]:
        """While it lasts, calls of a model's modules go through the taps."""

        def call(module: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            path = self.path(module)
            if path is None:
                return original(*args, **kwargs)
            return taps.call(module, path, original, args, kwargs, self.rate(module, args, kwargs))

        with self.within(model), self.heard(call):
            yield

    def rate(self, module: Any, args: Any, kwargs: Mapping[str, Any]) -> float:
        """That of a dropout which is on and drops single elements; 0 for anything else."""
        return 0.0

    def after(self, module: Any, output: Any) -> Mapping[str, Any]:
        """The arrays of the model after an outermost call, which gave this."""
        return {}

    def arrays(self, tree: Any) -> dict[str, Any]:
        """Arrays by path of a tree that is differentiated for or updated."""
        return {path: value_of(one) for path, one in tree_leaves(tree)}


def _patch(undo: ExitStack, cls: type, instead: Callable[..., Any]) -> None:
    if "__call__" in vars(cls):
        # Past the refusal of classes that are not to be changed.
        undo.callback(type.__setattr__, cls, "__call__", vars(cls)["__call__"])
        type.__setattr__(cls, "__call__", replacement(vars(cls)["__call__"], instead))


@contextmanager
def every_call(base: Any, instead: Callable[..., Any]) -> Iterator[None]:
    """While it lasts, calls of all modules go to instead(module, original, args, kwargs), of classes made later too."""
    had = vars(base).get("__init_subclass__")
    with ExitStack() as undo:

        def make(cls: type, *args: Any, **kwargs: Any) -> None:
            made = super(base, cls).__init_subclass__ if had is None else had.__get__(None, cls)
            made(*args, **kwargs)
            _patch(undo, cls, instead)

        def restore() -> None:
            if had is None:
                type.__delattr__(base, "__init_subclass__")
            else:
                type.__setattr__(base, "__init_subclass__", had)

        type.__setattr__(base, "__init_subclass__", classmethod(make))
        undo.callback(restore)
        for cls in {*subclasses(base)}:
            _patch(undo, cls, instead)
        yield


class AppliedModel(JaxModel):
    """A function beside the nested mappings of arrays that it is applied to; its modules are made as it is called."""

    def _take(self, given: Any, trees: Iterable[tuple[Any, bool]], modules: Mapping[str, Any] | None) -> None:
        """What the constructor of a library does: trees, each with whether it is trained."""
        self._given = given
        flat = [(path, one, trained) for tree, trained in trees for path, one in tree_leaves(tree)]
        self.arrays = {path: one for path, one, _ in flat}
        self.leaves = tuple(leaf_of(path, one, trained=trained) for path, one, trained in flat)
        self._modules = modules or _prefixes(list(self.arrays))

    def modules(self) -> Mapping[str, Any]:
        return self._modules

    @abstractmethod
    def kept(self, path: str, module: Any) -> Any:
        """What is kept of a module that a call has shown."""

    def built(self, modules: Mapping[str, Any]) -> JaxModel:
        order = sorted(modules, key=lambda path: path.count(".") + bool(path))
        return type(self)(self._given, {path: self.kept(path, modules[path]) for path in order})  # type: ignore[call-arg]

    def like(self, given: Any) -> JaxModel:
        return type(self)(given, self._modules)  # type: ignore[call-arg]


def value_of(variable: Any) -> Any:
    """The array itself, where a library wraps it."""
    return variable.get_value() if hasattr(variable, "get_value") else variable


def libraries() -> Iterator[Any]:
    """Our files for the libraries that are loaded."""
    for name, (needed, _) in _LIBRARIES.items():
        if is_imported(needed):
            yield import_module(f"{__package__}.{name}")


def model_of(given: Any) -> JaxModel | None:
    """The model as the core knows it; None when no library owns it."""
    if isinstance(given, JaxModel):
        return given
    for name, (needed, wrapper) in _LIBRARIES.items():
        if is_imported(needed):
            library = import_module(f"{__package__}.{name}")
            if library.owns(given):
                made: JaxModel = getattr(library, wrapper)(given)
                return made
    return None


def leaf_of(path: str, value: Any, *, trained: bool) -> Leaf:
    random = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    return Leaf(path, trained and not random, not random, tuple(value.shape), str(value.dtype))


def dotted(name: Any) -> str:
    """A name of a library as a part of a path."""
    return str(name).replace("/~/", ".").replace("/", ".")


def tree_leaves(tree: Any, front: str = "") -> Iterator[tuple[str, Any]]:
    """Every array of nested mappings under its dotted path."""
    if isinstance(tree, Mapping):
        for name, one in tree.items():
            yield from tree_leaves(one, join(front, dotted(name)))
    elif tree is not None:
        yield front, tree


def tree_with(tree: Any, arrays: Mapping[str, Any], front: str = "") -> Any:
    """The same nested mappings with other arrays."""
    if isinstance(tree, Mapping):
        return {name: tree_with(one, arrays, join(front, dotted(name))) for name, one in tree.items()}
    return arrays.get(front, tree)


def _prefixes(paths: Sequence[str]) -> dict[str, Any]:
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


def kept_by(
    state: Any, named: Callable[[Any], Mapping[str, Any]] = lambda tree: dict(flatten(tree))
) -> Iterator[tuple[str, str, Any]]:
    """What an optimizer of optax keeps for each parameter, by path and canonical name."""
    for one in jax.tree.leaves(state, is_leaf=lambda node: bool(set(getattr(node, "_fields", ())) & set(_STATES))):
        for name in getattr(one, "_fields", ()):
            if name in _STATES:
                for path, array in named(getattr(one, name)).items():
                    yield path, _STATES[name], value_of(array)


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
