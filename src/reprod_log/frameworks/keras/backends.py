"""The engines of Keras: one for each of its backends; on jax it is that of JAX itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import keras

from reprod_log.frameworks.contract import Draw
from reprod_log.frameworks.hooks import temporarily
from reprod_log.frameworks.keras.models import to_array
from reprod_log.frameworks.trees import Computed, Engine, Function, Leaves, Pass, Taps
from reprod_log.frameworks.values import Place
from reprod_log.recording import Array

Receive = Callable[..., None]
Zeroed = Callable[[Leaves, Callable[[Any], Any]], tuple[Any, Any]]
"""A function of leaves, and of what makes the zero that is added to a tensor: its gradient is that of the tensor."""


class _Eager(Engine):
    """Computes while a function runs."""

    name = "keras"

    def is_floating(self, tensor: Any) -> bool:
        return "float" in keras.backend.standardize_dtype(tensor.dtype)

    def tensor(self, array: Any, dtype: Any = None) -> Any:
        wanted = None if dtype is None else keras.backend.standardize_dtype(dtype)
        return keras.ops.convert_to_tensor(array, dtype=wanted)

    def to_array(self, tensor: Any) -> Array:
        return to_array(tensor)

    def sum(self, tensor: Any) -> Any:
        return keras.ops.sum(tensor)

    def prepared(self, function: Function, taps: Callable[[], Taps], *, backward: bool, wide: bool = False) -> Pass:
        def run(leaves: Leaves, rest: Any, draw: Draw) -> Computed:
            own = taps()
            own.masks = draw
            if not backward:
                return Computed(function(leaves, rest, own)[1], {}, own.values, {}, own)

            zeros: dict[Place, Any] = {}

            def listened(given: Leaves, zero: Callable[[Any], Any]) -> tuple[Any, Any]:
                own.zero = lambda place, tensor: zeros.setdefault(place, zero(tensor))
                return function(given, rest, own)

            result, found = self.differentiated(listened, leaves, zeros)
            back = dict(zip(zeros, found[len(leaves) :], strict=True))
            gradients = dict(zip(leaves, found, strict=False))
            return Computed(result, gradients, own.values, dict(reversed(list(back.items()))), own)

        return run

    @abstractmethod
    def differentiated(self, function: Zeroed, leaves: Leaves, zeros: Mapping[Place, Any]) -> tuple[Any, list[Any]]:
        """What else comes out of a function, and the gradients for its leaves and for the zeros that it was given."""

    def marked(self, taps: Taps, place: Place, leaf: Any) -> Any:
        if taps.zero is not None and place[2].startswith("output") and self.is_floating(leaf):
            leaf = leaf + taps.zero(place, leaf)
        taps.values[place] = leaf
        return leaf

    def instead(self, leaf: Any, value: Any) -> Any:
        return value + (leaf - keras.ops.stop_gradient(leaf))


class _Torch(_Eager):
    def __init__(self) -> None:
        self._torch = import_module("torch")

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, self._torch.Tensor)

    def differentiated(self, function: Zeroed, leaves: Leaves, zeros: Mapping[Place, Any]) -> tuple[Any, list[Any]]:
        torch = self._torch
        own = {name: one.detach().requires_grad_() for name, one in leaves.items()}
        value, aux = function(own, lambda tensor: torch.zeros_like(tensor, requires_grad=True))
        wanted = [*own.values(), *zeros.values()]
        return aux, list(torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True))

    def with_gradient(self, leaf: Any, gradient: Any) -> Any:
        if leaf.requires_grad:
            leaf = leaf * 1
            leaf.register_hook(lambda _: gradient)
        return leaf

    def tapped(self, forward: Receive, backward: Receive, tensor: Any) -> Any:
        self.emit(forward, tensor)
        if tensor.requires_grad:
            tensor.register_hook(lambda gradient: self.emit(backward, gradient))
        return tensor


class _Tensorflow(_Eager):
    def __init__(self) -> None:
        self._tf = import_module("tensorflow")

    def is_tensor(self, value: object) -> bool:
        return bool(self._tf.is_tensor(value))

    def differentiated(self, function: Zeroed, leaves: Leaves, zeros: Mapping[Place, Any]) -> tuple[Any, list[Any]]:
        tf = self._tf
        with tf.GradientTape() as tape:
            tape.watch(list(leaves.values()))

            def zero(tensor: Any) -> Any:
                made = tf.zeros_like(tensor)
                tape.watch(made)
                return made

            value, aux = function(leaves, zero)
        wanted = [*leaves.values(), *zeros.values()]
        found = tape.gradient(value, wanted, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # The gradient of a table that is looked up is kept as its rows.
        return aux, [tf.convert_to_tensor(one) for one in found]

    def _with_way_back(self, tensor: Any, back: Callable[[Any], Any]) -> Any:
        return self._tf.custom_gradient(lambda one: (self._tf.identity(one), back))(tensor)

    def with_gradient(self, leaf: Any, gradient: Any) -> Any:
        return self._with_way_back(leaf, lambda _: gradient)

    @contextmanager
    def watched(self) -> Iterator[None]:
        # Inside of a graph there are no values.
        before = self._tf.config.functions_run_eagerly()
        with temporarily(self._tf.config.run_functions_eagerly, True, before):
            yield

    def tapped(self, forward: Receive, backward: Receive, tensor: Any) -> Any:
        def back(gradient: Any) -> Any:
            self.emit(backward, gradient)
            return gradient

        self.emit(forward, tensor)
        return self._with_way_back(tensor, back)


def _jax() -> Engine:
    # Only on the backend jax.
    made: Engine = import_module("reprod_log.frameworks.jax.engine").JaxEngine("keras", own_modules=False)
    return made


_KNOWN: dict[str, Callable[[], Engine]] = {"jax": _jax, "torch": _Torch, "tensorflow": _Tensorflow}


@cache
def engine() -> Engine:
    """That of the backend that Keras was loaded with."""
    return _KNOWN[keras.backend.backend()]()
