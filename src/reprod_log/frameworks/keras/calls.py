"""Calls of Keras layers, in a run of ours and in a loop of the user's own (`fit` or another), losses and updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from reprod_log.frameworks.contract import Listener
from reprod_log.frameworks.keras.backends import engine
from reprod_log.frameworks.keras.models import Activation, KerasModel, dropout_rate, ended_by, model_of
from reprod_log.frameworks.keras.optimizers import described, slots_of
from reprod_log.frameworks.module_tree import join
from reprod_log.frameworks.programs import OPTIMIZER
from reprod_log.frameworks.trees import Taps, method_replaced, replacement
from reprod_log.frameworks.values import Place
from reprod_log.frameworks.watching import Watch, below


@dataclass
class KerasTaps(Taps):
    """A layer that ends in an activation is two, and one that only pads for another is none."""

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


class KerasWatch(Watch):
    def __init__(self, listener: Listener) -> None:
        given = listener.models
        wanted = None if given is None else {id(model_of(one).model): name for name, one in given.items()}
        super().__init__(listener, engine(), KerasTaps, wanted)

    @contextmanager
    def on(self) -> Iterator[None]:
        optimizer, trainer, layer = keras.optimizers.Optimizer, keras.Model, keras.layers.Layer
        base = next(one for one in optimizer.__mro__ if "apply" in vars(one))
        losses = next(one for one in trainer.__mro__ if "_compute_loss" in vars(one))
        with ExitStack() as undo:
            undo.enter_context(self.engine.watched())
            undo.enter_context(every_call(self._call))
            undo.enter_context(method_replaced(layer, "stateless_call", self._calling_stateless))
            undo.enter_context(method_replaced(base, "apply", self._applying))
            undo.enter_context(method_replaced(losses, "_compute_loss", self._computing))
            yield

    def _named(self, layer: Any) -> str | None:
        # By id: models that report are kept, so that nobody else gets it.
        if self._names.get(id(layer)) in self.models:
            return self._names[id(layer)]
        if in_symbolic_scope() or not layer.built or not layer.trainable_variables:
            return None
        return self.named(id(layer), layer.name, lambda: model_of(layer))

    def _model(self, name: str) -> KerasModel:
        model = self.models[name]
        assert isinstance(model, KerasModel)
        return model

    def _call(self, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if isinstance(self.taps, KerasTaps):
            return self.taps.layer_called(self._model(self._name), {}, layer, original, args, kwargs)
        has_tensors = bool(self.engine.tensors_in((args, kwargs), ""))
        name = self.listener.attempt(self._named, layer) if has_tensors and not in_symbolic_scope() else None
        if name is None:
            return original(*args, **kwargs)
        model = self._model(name)

        def call(taps: Taps) -> Any:
            assert isinstance(taps, KerasTaps)
            with taps.activations(model):
                return taps.layer_called(model, {}, layer, original, args, kwargs)

        output = self.outermost(name, args, kwargs, call)
        self.put_all(
            "buffer", name, {path: model.variables[path].value for path in model.variables.keys() - model.parameters}
        )
        return output

    def _calling_stateless(self, stateless: Callable[..., Any]) -> Callable[..., Any]:
        """The way in which trainers on jax call a model: past its own `__call__`."""

        def instead(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if self.taps is not None or self.listener.attempt(self._named, layer) is None:
                return stateless(layer, *args, **kwargs)
            inner = layer.call
            object.__setattr__(layer, "call", lambda *args, **kwargs: self._call(layer, inner, args, kwargs))
            try:
                return stateless(layer, *args, **kwargs)
            finally:
                object.__delattr__(layer, "call")

        return instead

    def _computing(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        def instead(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            loss = compute(trainer, *args, **kwargs)
            if self._names.get(id(trainer)) in self.models and loss is not None and kwargs.get("training", True):
                self.put("loss", "loss", keras.ops.stop_gradient(loss))
            return loss

        return instead

    def _applying(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        def instead(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
            given = optimizer._trainable_variables if trainable_variables is None else list(trainable_variables)
            own = self._paths()
            mine = {own[id(one)]: (one, gradient) for one, gradient in zip(given, grads, strict=True) if id(one) in own}
            before = self.listener.attempt(self._before, optimizer, mine) if mine else None
            result = apply(optimizer, grads, trainable_variables)
            if before is not None:
                self.listener.attempt(self._after, optimizer, {path: one for path, (one, _) in mine.items()}, before)
            return result

        return instead

    def _before(self, optimizer: Any, mine: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
        self.put("lr", OPTIMIZER, optimizer.learning_rate, "group0")
        self.put_all("gradient", "", {path: one for path, (_, one) in mine.items() if one is not None}, "raw")
        return {path: keras.ops.copy(one.value) for path, (one, _) in mine.items()}

    def _after(self, optimizer: Any, variables: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        self.put_all("update", "", {path: one.value - before[path] for path, one in variables.items()})
        self.put_all("parameter", "", {path: one.value for path, one in variables.items()})
        for path, role, tensor in slots_of(optimizer, variables, optimizer.learning_rate):
            self.put("optimizer", path, tensor, role)
        self.listener.know({"optimizers": {OPTIMIZER: described(optimizer, list(variables))}})

    def _paths(self) -> dict[int, str]:
        return {id(one): below(name, path) for name in self.models for path, one in self._model(name).variables.items()}
