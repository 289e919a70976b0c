"""Taps: what every layer is given and gives while a model is called, with a zero added for the gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

from reprod_log.frameworks.hooks import replaced
from reprod_log.frameworks.keras.backends import Zero, backend
from reprod_log.frameworks.keras.models import Activation, KerasModel
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.nests import flatten, mapped
from reprod_log.frameworks.values import Place, name_of


def is_tensor(leaf: object) -> bool:
    return backend().is_tensor(leaf)


def is_floating(leaf: Any) -> bool:
    return "float" in keras.backend.standardize_dtype(leaf.dtype)


@dataclass
class Taps:
    """What the calls of one pass give."""

    model: KerasModel
    zero: Zero | None = None
    values: dict[Place, Any] = field(default_factory=dict)
    """Tensors by place, in the order of execution."""
    types: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    """Of the first call of every layer: what it was called with and what it returned."""
    _calls: dict[str, int] = field(default_factory=dict)
    _given: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    """What the call of a layer that is under way was called with."""

    _padded: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """What the layer that pads for another was given, by the id of the other."""

    def __post_init__(self) -> None:
        self._paths = {id(one): path for path, one in self.model.modules.items()}
        self._ended = {id(one.layer) for one in self.model.modules.values() if isinstance(one, Activation)}

    def call(self, layer: Any, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of a layer, listened to."""
        if id(layer) in self.model.pads:
            self._padded[id(self.model.pads[id(layer)])] = args
        path = self._paths.get(id(layer))
        if path is None or not any(is_tensor(leaf) for _, leaf in flatten((args, kwargs))):
            return original(layer, *args, **kwargs)
        number = self._enter(path, type(layer).__name__, self._padded.pop(id(layer), args), kwargs)
        output = original(layer, *args, **kwargs)
        if id(layer) not in self._ended:
            output = self._leave(path, number, *self._given.pop(path), output)
        return output

    def ended(self, path: str, original: Callable[..., Any], tensor: Any) -> Any:
        """The activation that ends a layer: what it is given is what the layer gives without it."""
        if path not in self._given:
            # Called by somebody else than its layer.
            return original(tensor)
        tensor = self._leave(path, self._calls[path], *self._given.pop(path), tensor)
        below = join(path, "activation")
        number = self._enter(below, getattr(original, "__name__", "activation"), (tensor,), {})
        return self._leave(below, number, (tensor,), {}, original(tensor))

    def _enter(self, path: str, type_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        number = self._calls[path] = self._calls.get(path, -1) + 1
        self.types[path] = type_name
        self._given[path] = (args, kwargs)
        for role, leaf in (*flatten(args, "input"), *flatten(kwargs, "input")):
            if is_tensor(leaf):
                self.taken((path, number, role), leaf)
        return number

    def taken(self, place: Place, leaf: Any) -> None:
        """What a layer is given."""
        self.values[place] = leaf

    def shown(self, place: Place, leaf: Any) -> Any:
        """What a layer gives, as it goes on from there."""
        if self.zero is not None and is_floating(leaf):
            leaf = leaf + self.zero(name_of(place), leaf)
        self.values[place] = leaf
        return leaf

    def _leave(self, path: str, number: int, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        def given(role: str, leaf: Any) -> Any:
            if not is_tensor(leaf):
                return leaf
            mask = get_keras_mask(leaf)
            leaf = self.shown((path, number, role), leaf)
            if mask is not None:
                set_keras_mask(leaf, mask)
            return leaf

        output = mapped(output, given, "output")
        if number == 0:
            self.arguments[path] = (args, kwargs, output)
        return output


@contextmanager
def listening(taps: Taps) -> Iterator[None]:
    """While it lasts, calls of the model's layers go through the taps."""
    with every_call(taps.call), activations(taps):
        yield


@contextmanager
def every_call(instead: Callable[..., Any]) -> Iterator[None]:
    """While it lasts, calls of all layers go to instead(layer, original, args, kwargs)."""
    layer_class = keras.layers.Layer
    original = layer_class.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return instead(self, original, args, kwargs)

    undo = replaced(layer_class, "__call__", call)
    try:
        yield
    finally:
        undo()


@contextmanager
def activations(taps: Taps) -> Iterator[None]:
    """While it lasts, the activations that end layers of the model go through the taps."""
    with ExitStack() as undo:
        for path, one in taps.model.modules.items():
            if isinstance(one, Activation):
                above = path.removesuffix("activation").removesuffix(".")
                undo.enter_context(ended_by(one, partial(taps.ended, above, one.function)))
        yield


@contextmanager
def ended_by(one: Activation, function: Callable[[Any], Any]) -> Iterator[None]:
    """While it lasts, a layer applies another function at its end."""
    # Past the layer's own setter, which keeps track of what belongs to a model.
    object.__setattr__(one.layer, "activation", function)
    try:
        yield
    finally:
        object.__setattr__(one.layer, "activation", one.function)
