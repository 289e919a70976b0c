"""Taps of Keras: a layer that ends in an activation is two, and one that only pads for another is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

from reprod_log.frameworks.keras.models import Activation, KerasModel, dropout_rate, ended_by
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.trees import Taps, method_replaced, replacement
from reprod_log.frameworks.values import Place


@dataclass
class KerasTaps(Taps):
    _open: dict[str, tuple[int, Any, Any]] = field(default_factory=dict)
    """Number and arguments of the calls that are under way, by path."""
    _padded: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """What the layer that pads for another was given, by the id of the other."""

    @contextmanager
    def of(self, model: KerasModel, options: Mapping[str, Any]) -> Iterator[None]:
        """While it lasts, calls of the model's layers go through these taps."""
        with every_call(partial(self.layer_called, model, options)), self.activations(model):
            yield

    @contextmanager
    def activations(self, model: KerasModel) -> Iterator[None]:
        """While it lasts, the activations that end layers of the model go through these taps."""
        with ExitStack() as undo:
            for path, one in model.layers.items():
                if isinstance(one, Activation):
                    above = path.removesuffix("activation").removesuffix(".")
                    undo.enter_context(ended_by(one, partial(self._ended, above, one)))
            yield

    def layer_called(
        self, model: KerasModel, options: Mapping[str, Any], layer: Any, original: Any, args: Any, kwargs: Any
    ) -> Any:
        if id(layer) in model.pads:
            self._padded[id(model.pads[id(layer)])] = args
        path = model.paths.get(id(layer))
        if path is None or not self.engine.tensors_in((args, kwargs), ""):
            return original(*args, **kwargs)
        rate, before = dropout_rate(layer, options), self._padded.pop(id(layer), None)
        if rate:
            return self.call(layer, path, original, args, kwargs, rate)
        number, given, kwargs = self.enter(layer, path, args if before is None else before, kwargs)
        self._open[path] = number, given, kwargs
        with self.engine.scope(path):
            output = original(*(given if before is None else args), **kwargs)
        if path in self._open:
            output = self.leave(path, *self._open.pop(path), output)
        return output

    def _ended(self, path: str, end: Activation, tensor: Any) -> Any:
        """The activation that ends a layer: what it is given is what the layer gives without it."""
        if path not in self._open:
            # Called by somebody else than its layer.
            return end.function(tensor)
        tensor = self.leave(path, *self._open.pop(path), tensor)
        below, name = join(path, "activation"), getattr(end.function, "__name__", "activation")
        number, args, kwargs = self.enter(end, below, (tensor,), {}, name)
        return self.leave(below, number, args, kwargs, end.function(*args))

    def mark(self, place: Place, leaf: Any) -> Any:
        mask = get_keras_mask(leaf)
        leaf = super().mark(place, leaf)
        if mask is not None:
            set_keras_mask(leaf, mask)
        return leaf


def every_call(instead: Callable[..., Any]) -> AbstractContextManager[None]:
    """While it lasts, calls of all layers go to instead(layer, original, args, kwargs)."""
    return method_replaced(keras.layers.Layer, "__call__", lambda original: replacement(original, instead))
