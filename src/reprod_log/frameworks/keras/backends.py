"""The engines of Keras: one for each of its backends; on jax it is that of JAX itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import keras

from reprod_log.frameworks.hooks import temporarily
from reprod_log.frameworks.keras.models import to_array
from reprod_log.frameworks.trees import Computed, Draw, Engine, Function, Leaves, Pass, Taps
from reprod_log.frameworks.values import Place
from reprod_log.recording import Array

Receive = Callable[..., None]
Zero = Callable[[Place, Any], Any]
"""Gives the zero that is added to a tensor, by its place: the zero's gradient is that of the tensor."""


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

            def listened(given: Leaves, zero: Zero) -> tuple[Any, Any]:
                own.zero = zero
                return function(given, rest, own)

            result, gradients, back = self.differentiated(listened, leaves)
            return Computed(result, gradients, own.values, dict(reversed(list(back.items()))), own)

        return run

    @abstractmethod
    def differentiated(
        self, function: Callable[[Leaves, Zero], tuple[Any, Any]], leaves: Leaves
    ) -> tuple[Any, Leaves, dict[Place, Any]]:
        """What else comes out of a function, the gradients for its leaves, and those of the tensors with a zero."""

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

    def differentiated(
        self, function: Callable[[Leaves, Zero], tuple[Any, Any]], leaves: Leaves
    ) -> tuple[Any, Leaves, dict[Place, Any]]:
        torch, zeros = self._torch, {}
        own = {name: one.detach().requires_grad_() for name, one in leaves.items()}

        def zero(place: Place, tensor: Any) -> Any:
            zeros[place] = torch.zeros_like(tensor, requires_grad=True)
            return zeros[place]

        value, aux = function(own, zero)
        wanted = [*own.values(), *zeros.values()]
        found = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
        return aux, dict(zip(own, found, strict=False)), dict(zip(zeros, found[len(own) :], strict=True))

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

    def differentiated(
        self, function: Callable[[Leaves, Zero], tuple[Any, Any]], leaves: Leaves
    ) -> tuple[Any, Leaves, dict[Place, Any]]:
        tf, zeros = self._tf, {}
        with tf.GradientTape() as tape:
            tape.watch(list(leaves.values()))

            def zero(place: Place, tensor: Any) -> Any:
                zeros[place] = tf.zeros_like(tensor)
                tape.watch(zeros[place])
                return zeros[place]

            value, aux = function(leaves, zero)
        wanted = [*leaves.values(), *zeros.values()]
        found = tape.gradient(value, wanted, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # The gradient of a table that is looked up is kept as its rows.
        dense = [tf.convert_to_tensor(one) for one in found]
        return aux, dict(zip(leaves, dense, strict=False)), dict(zip(zeros, dense[len(leaves) :], strict=True))

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
