"""Keras models in a loop of the user's own, `fit` or another: what layers give and get back, losses, updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any

import keras
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from reprod_log.frameworks.contract import Listener
from reprod_log.frameworks.hooks import replaced
from reprod_log.frameworks.keras.backends import backend
from reprod_log.frameworks.keras.models import KerasModel, facts_of, model_of
from reprod_log.frameworks.keras.optimizers import described, slots_of
from reprod_log.frameworks.keras.taps import Taps, activations, every_call, is_floating, is_tensor
from reprod_log.frameworks.module_tree import info_of, join
from reprod_log.frameworks.nests import flatten
from reprod_log.frameworks.values import Place, Roots

_OPTIMIZER = "optimizer"


class _Live(Taps):
    """Taps that call back with the values."""

    def __init__(self, model: KerasModel, listener: Listener, root: str, outermost: int) -> None:
        super().__init__(model)
        self._listener, self._root, self._outermost = listener, root, outermost

    def _receiver(self, phase: str, place: Place) -> Callable[..., None]:
        path, number, role = place
        name = join(self._root, path) if path else self._root
        number = (self._outermost, number)  # type: ignore[assignment]  # only told apart
        return partial(self._listener.report, phase, name, role=role, number=number, layer_type=self.types[path])

    def taken(self, place: Place, leaf: Any) -> None:
        self._listener.attempt(lambda: backend().emit(self._receiver("forward", place), leaf))

    def shown(self, place: Place, leaf: Any) -> Any:
        shown = self._listener.attempt(self._shown, place, leaf)
        return leaf if shown is None else shown

    def _shown(self, place: Place, leaf: Any) -> Any:
        forward = self._receiver("forward", place)
        if is_floating(leaf):
            return backend().tapped(forward, self._receiver("backward", place), leaf)
        backend().emit(forward, leaf)
        return leaf


class Watch:
    """One listener, from the first call of a model to the updates."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        given = listener.models
        wanted = None if given is None else {id(model_of(one).model): name for name, one in given.items()}
        self._roots = Roots(wanted)
        self._known: dict[int, tuple[str, KerasModel]] = {}
        """Models that report, with their names, by id; they are kept, so that nobody else gets it."""
        self._taps: _Live | None = None
        self._calls = count()

    @contextmanager
    def on(self) -> Iterator[None]:
        optimizer, trainer = keras.optimizers.Optimizer, keras.Model
        base = next(one for one in optimizer.__mro__ if "apply" in vars(one))
        losses = next(one for one in trainer.__mro__ if "_compute_loss" in vars(one))
        with ExitStack() as undo:
            undo.enter_context(backend().watched())
            undo.enter_context(every_call(self._call))
            layer = keras.layers.Layer
            undo.callback(replaced(layer, "stateless_call", self._calling_stateless(layer.stateless_call)))
            undo.callback(replaced(base, "apply", self._applying(base.apply)))
            undo.callback(replaced(losses, "_compute_loss", self._computing(losses._compute_loss)))
            yield

    def _named(self, layer: Any) -> str | None:
        if id(layer) not in self._known:
            if in_symbolic_scope() or not layer.built or not layer.trainable_variables:
                return None
            name = self._roots.name(id(layer), layer.name)
            if name is None:
                return None
            model = model_of(layer)
            self._known[id(layer)] = name, model
            self._listener.know({"backend": keras.backend.backend()})
            self._listener.found(name, [info_of(one, "keras") for one in facts_of(model)])
        return self._known[id(layer)][0]

    def _call(self, layer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._taps is not None:
            return self._taps.call(layer, original, args, kwargs)
        given = [(role, leaf) for role, leaf in (*flatten(args, "input"), *flatten(kwargs, "input")) if is_tensor(leaf)]
        name = self._listener.attempt(self._named, layer) if given and not in_symbolic_scope() else None
        if name is None:
            return original(layer, *args, **kwargs)
        number = next(self._calls)
        for role, leaf in given:
            self._put("data", name, leaf, role, number=number)
        self._taps = _Live(self._known[id(layer)][1], self._listener, name, number)
        try:
            with activations(self._taps):
                output = self._taps.call(layer, original, args, kwargs)
        finally:
            self._taps = None
        model = self._known[id(layer)][1]
        for path in model.variables.keys() - model.parameters:
            self._put("buffer", join(name, path), model.variables[path].value)
        return output

    def _calling_stateless(self, stateless: Callable[..., Any]) -> Callable[..., Any]:
        """The way in which trainers on jax call a model: past its own `__call__`."""

        def instead(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._taps is not None or self._listener.attempt(self._named, layer) is None:
                return stateless(layer, *args, **kwargs)
            inner = layer.call

            def call(*args: Any, **kwargs: Any) -> Any:
                return self._call(layer, lambda _, *args, **kwargs: inner(*args, **kwargs), args, kwargs)

            object.__setattr__(layer, "call", call)
            try:
                return stateless(layer, *args, **kwargs)
            finally:
                object.__delattr__(layer, "call")

        return instead

    def _computing(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        def instead(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            loss = compute(trainer, *args, **kwargs)
            if id(trainer) in self._known and loss is not None and kwargs.get("training", True):
                self._put("loss", "loss", keras.ops.stop_gradient(loss))
            return loss

        return instead

    def _applying(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        def instead(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
            given = optimizer._trainable_variables if trainable_variables is None else list(trainable_variables)
            own = self._paths()
            mine = {own[id(one)]: (one, gradient) for one, gradient in zip(given, grads, strict=True) if id(one) in own}
            before = self._listener.attempt(self._before, optimizer, mine) if mine else None
            result = apply(optimizer, grads, trainable_variables)
            if before is not None:
                self._listener.attempt(self._after, optimizer, {path: one for path, (one, _) in mine.items()}, before)
            return result

        return instead

    def _before(self, optimizer: Any, mine: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
        self._put("lr", _OPTIMIZER, optimizer.learning_rate, "group0")
        for path, (_, gradient) in mine.items():
            if gradient is not None:
                self._put("gradient", path, gradient, "raw")
        return {path: keras.ops.copy(one.value) for path, (one, _) in mine.items()}

    def _after(self, optimizer: Any, variables: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        for path, one in variables.items():
            self._put("update", path, one.value - before[path])
            self._put("parameter", path, one.value)
        for path, role, tensor in slots_of(optimizer, variables):
            self._put("optimizer", path, tensor, role)
        self._listener.know({"optimizers": {_OPTIMIZER: described(optimizer, list(variables))}})

    def _paths(self) -> dict[int, str]:
        return {
            id(one): join(name, path) for name, model in self._known.values() for path, one in model.variables.items()
        }

    def _put(self, phase: str, path: str, tensor: Any, role: str = "", number: int = 0) -> None:
        receive = partial(self._listener.report, phase, path, role=role, number=number)
        self._listener.attempt(backend().emit, receive, tensor)
