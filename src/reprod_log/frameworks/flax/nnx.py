"""NNX models taken apart: modules and variables by path, and the model put together again from arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import ModuleFacts, StateFacts
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.modules import plain_settings, set_setting
from reprod_log.recording import Array

_CONVOLUTIONS = (nnx.Conv, nnx.ConvTranspose)


def is_model(thing: object) -> bool:
    return isinstance(thing, nnx.Module)


def modules_of(model: Any) -> Iterator[tuple[str, Any]]:
    """Every module once, under its first path, in the order in which they were made."""
    seen: set[int] = set()

    def visit(path: str, one: Any) -> Iterator[tuple[str, Any]]:
        if id(one) in seen:
            return
        seen.add(id(one))
        if isinstance(one, nnx.Module) and not isinstance(one, (nnx.List, nnx.Dict)):
            yield path, one
        for name, child in _children(one):
            yield from visit(join(path, name), child)

    yield from visit("", model)


def _children(one: Any) -> list[tuple[str, Any]]:
    if isinstance(one, (list, tuple, nnx.List)):
        items: list[tuple[str, Any]] = [(str(place), child) for place, child in enumerate(one)]
    elif isinstance(one, Mapping):
        items = [(str(name), child) for name, child in one.items()]
    else:
        items = [(name, child) for name, child in vars(one).items() if not name.startswith("_")]
    return [
        (name, child) for name, child in items if isinstance(child, (nnx.Module, nnx.List, nnx.Dict, list, tuple, dict))
    ]


@dataclass(frozen=True)
class Leaf:
    """One array of a model's state."""

    path: str
    trained: bool
    recorded: bool
    """False for keys and counters of random numbers."""
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class Parts:
    """An NNX model as its graph and its arrays, so that a traced function can put another one together."""

    model: Any

    @cached_property
    def _split(self) -> tuple[Any, Any]:
        graph, state = nnx.split(self.model)
        return graph, state

    @cached_property
    def _flat(self) -> list[tuple[tuple[Any, ...], Any]]:
        return list(nnx.to_flat_state(self._split[1]))

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(_leaf(".".join(map(str, path)), variable) for path, variable in self._flat)

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """Every array by its path."""
        return {leaf.path: _value(variable) for leaf, (_, variable) in zip(self.leaves, self._flat, strict=True)}

    def together(self, arrays: Mapping[str, Any]) -> Any:
        """A model of its own with these arrays."""
        flat = [
            (path, variable.replace(arrays[leaf.path]))
            for leaf, (path, variable) in zip(self.leaves, self._flat, strict=True)
        ]
        return nnx.merge(self._split[0], nnx.from_flat_state(flat))

    def taken(self, model: Any) -> dict[str, Any]:
        """The arrays of a model that `together` has made, as they are now."""
        state = nnx.to_flat_state(nnx.state(model))
        return {".".join(map(str, path)): _value(variable) for path, variable in state}


def _value(variable: Any) -> Any:
    return variable.get_value() if hasattr(variable, "get_value") else variable.value


def _leaf(path: str, variable: Any) -> Leaf:
    value = _value(variable)
    random = isinstance(variable, nnx.RngState)
    return Leaf(path, isinstance(variable, nnx.Param), not random, tuple(value.shape), str(value.dtype))


def widened(model: Any, dtype: str) -> None:
    """Have layers that were made for one type compute in another: some keep the type as an attribute."""
    wanted = jnp.dtype(dtype)
    for _, module in modules_of(model):
        for name in ("dtype", "param_dtype"):
            kept = vars(module).get(name)
            if kept is not None and jnp.issubdtype(kept, jnp.floating):
                setattr(module, name, wanted)


def facts_of(model: Any) -> tuple[ModuleFacts, ...]:
    parts = Parts(model)
    modules = dict(modules_of(model))
    images = {path for path, one in modules.items() if isinstance(one, _CONVOLUTIONS)}
    leaves = [leaf for leaf in parts.leaves if leaf.recorded]
    found = []
    for path, module in modules.items():
        front = f"{path}." if path else ""
        inside = {
            leaf.path.removeprefix(front): StateFacts(leaf.shape, leaf.dtype, leaf.trained, leaf.path)
            for leaf in leaves
            if leaf.path.startswith(front)
        }
        below = {other for other in modules if other and other != path and other.startswith(front)}
        own = tuple(name for name in inside if not any(join(path, name).startswith(f"{other}.") for other in below))
        settings = settings_of(module)
        if any(other.startswith(front) for other in images - {path}):
            # Convolutions of flax have their channels last, and so has what goes between them.
            settings.setdefault("data_format", "NHWC")
        classes = (*_with_rank(module), *(f"{one.__module__}.{one.__name__}" for one in type(module).__mro__))
        found.append(ModuleFacts(path, _parent(path, modules), classes, settings, own, inside, {}))
    return tuple(found)


def _with_rank(module: Any) -> Iterator[str]:
    """A name for a convolution that tells its number of dimensions, as the table of layers wants it."""
    if not isinstance(module, _CONVOLUTIONS) or not getattr(module, "transpose_kernel", True):
        # A transposed convolution that mirrors its kernel has another layout, which no column describes.
        return
    size = len(module.kernel_size) if isinstance(module.kernel_size, Sequence) else 1
    yield f"flax.nnx.{'Conv' if isinstance(module, nnx.Conv) else 'ConvTranspose'}{size}d"


def _parent(path: str, modules: Mapping[str, Any]) -> str | None:
    if not path:
        return None
    above = path.rpartition(".")[0]
    while above not in modules:
        above = above.rpartition(".")[0]
    return above


def settings_of(module: Any) -> dict[str, Any]:
    """Plain attributes; those of a convolution under the words that frameworks share, because their forms differ."""
    settings = plain_settings(module)
    if isinstance(module, _CONVOLUTIONS):
        size = len(module.kernel_size) if isinstance(module.kernel_size, Sequence) else 1
        settings["stride"] = _each(module.strides, size)
        settings["dilation"] = _each(module.kernel_dilation, size)
        settings["groups"] = getattr(module, "feature_group_count", 1)
        settings["padding"] = _padding(module.padding, size)
    return settings


def _each(value: Any, size: int) -> list[int]:
    if value is None:
        return [1] * size
    return [int(value)] * size if isinstance(value, int) else [int(one) for one in value]


def _padding(value: Any, size: int) -> Any:
    """As torch writes it where both ends are alike; the word or the pairs otherwise."""
    if isinstance(value, str):
        return [0] * size if value == "VALID" else value
    if isinstance(value, int):
        return [value] * size
    pairs = [(one, one) if isinstance(one, int) else tuple(one) for one in value]
    if all(before == after for before, after in pairs):
        return [int(before) for before, _ in pairs]
    return [int(one) for pair in pairs for one in pair]


def with_settings(model: Any, settings: Mapping[str, Mapping[str, Any]]) -> None:
    modules = dict(modules_of(model))
    for path, changed in settings.items():
        for name, value in changed.items():
            if path not in modules or name not in vars(modules[path]):
                raise UsageError(f"{path or 'the model'} has no setting {name!r} that can be changed")
            set_setting(modules[path], name, value)


def refuse_randomness(model: Any) -> None:
    """Masks of Dropout are not shared with another framework: a model that draws some is not compared."""
    for path, module in modules_of(model):
        if isinstance(module, nnx.Dropout) and module.rate > 0 and not module.deterministic:
            raise UsageError(
                f"{path} draws a mask of its own in training mode, which the other side does not have: "
                "call model.eval(), or set its rate to 0 on both sides"
            )


def to_array(value: Any) -> Array:
    return np.array(jax.random.key_data(value) if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key) else value)
