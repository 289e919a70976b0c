"""The three backends of Keras: how a function is compiled, differentiated, and run in float64."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

import keras
import numpy as np

from reprod_log.frameworks.hooks import temporarily

Leaves = Mapping[str, Any]
Zero = Callable[[str, Any], Any]
"""Gives the zero that is added to a tensor, by a name for it: its gradient is that of the tensor."""
Receive = Callable[..., None]
Function = Callable[[Leaves, Zero], tuple[Any, Any]]
"""From what is differentiated for to a number and whatever else comes out."""


class Backend(ABC):
    """Computes while a function runs, unless it compiles."""

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as models of this backend run it."""
        return function

    @abstractmethod
    def differentiated(self, function: Function, leaves: Leaves) -> tuple[Any, Leaves, Leaves]:
        """What else comes out of a function, the gradients for its leaves, and those of the tensors with a zero."""

    def precision(self, dtype: str | None) -> AbstractContextManager[Any]:
        """While it lasts, the backend has this floating type."""
        return nullcontext()

    @abstractmethod
    def is_tensor(self, value: object) -> bool: ...

    def watched(self) -> AbstractContextManager[Any]:
        """While it lasts, what is computed can be called back."""
        return nullcontext()

    def settle(self) -> None:
        """Wait until everything that was computed was called back."""
        return

    def emit(self, receive: Receive, tensor: Any) -> None:
        """Have `receive(array=…)` called with a tensor when it is computed."""
        receive(array=np.array(keras.ops.convert_to_numpy(tensor)))

    @abstractmethod
    def tapped(self, forward: Receive, backward: Receive, tensor: Any) -> Any:
        """The tensor, which is called back with, and its gradient."""


class _Jax(Backend):
    """A step is one jitted function."""

    def __init__(self) -> None:
        self._jax = import_module("jax")

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        found: Callable[..., Any] = self._jax.jit(function)
        return found

    def differentiated(self, function: Function, leaves: Leaves) -> tuple[Any, Leaves, Leaves]:
        jax, jnp = self._jax, self._jax.numpy
        shapes: dict[str, Any] = {}

        def seen(name: str, tensor: Any) -> Any:
            shapes[name] = (tensor.shape, tensor.dtype)
            return jnp.zeros(tensor.shape, tensor.dtype)

        jax.eval_shape(lambda given: function(given, seen)[0], leaves)
        zeros = {name: jnp.zeros(*one) for name, one in shapes.items()}
        both = jax.grad(lambda given, added: function(given, lambda name, _: added[name]), (0, 1), has_aux=True)
        (own, inner), aux = both(dict(leaves), zeros)
        return aux, own, inner

    def precision(self, dtype: str | None) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = self._jax.enable_x64(True) if dtype == "float64" else nullcontext()
        return found

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, self._jax.Array)

    @contextmanager
    def watched(self) -> Iterator[None]:
        with _taps().traced_anew():
            yield
            self.settle()

    def settle(self) -> None:
        self._jax.effects_barrier()

    def emit(self, receive: Receive, tensor: Any) -> None:
        _taps().emit(receive, self._jax.numpy.asarray(tensor))

    def tapped(self, forward: Receive, backward: Receive, tensor: Any) -> Any:
        return _taps().both_ways(forward, backward, tensor)


class _Torch(Backend):
    def __init__(self) -> None:
        self._torch = import_module("torch")

    def differentiated(self, function: Function, leaves: Leaves) -> tuple[Any, Leaves, Leaves]:
        torch, zeros = self._torch, {}
        own = {name: one.detach().requires_grad_() for name, one in leaves.items()}

        def zero(name: str, tensor: Any) -> Any:
            zeros[name] = torch.zeros_like(tensor, requires_grad=True)
            return zeros[name]

        value, aux = function(own, zero)
        wanted = [*own.values(), *zeros.values()]
        found = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
        return aux, dict(zip(own, found, strict=False)), dict(zip(zeros, found[len(own) :], strict=True))

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, self._torch.Tensor)

    def tapped(self, forward: Receive, backward: Receive, tensor: Any) -> Any:
        self.emit(forward, tensor)
        if tensor.requires_grad:
            tensor.register_hook(lambda gradient: self.emit(backward, gradient))
        return tensor


class _Tensorflow(Backend):
    def __init__(self) -> None:
        self._tf = import_module("tensorflow")

    def differentiated(self, function: Function, leaves: Leaves) -> tuple[Any, Leaves, Leaves]:
        tf, zeros = self._tf, {}
        with tf.GradientTape() as tape:
            tape.watch(list(leaves.values()))

            def zero(name: str, tensor: Any) -> Any:
                zeros[name] = tf.zeros_like(tensor)
                tape.watch(zeros[name])
                return zeros[name]

            value, aux = function(leaves, zero)
        found = tape.gradient(value, (dict(leaves), zeros), unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # The gradient of a table that is looked up is kept as its rows.
        dense = tf.nest.map_structure(tf.convert_to_tensor, found, expand_composites=False)
        return aux, dense[0], dense[1]

    def is_tensor(self, value: object) -> bool:
        return bool(self._tf.is_tensor(value))

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
        return self._tf.custom_gradient(lambda one: (self._tf.identity(one), back))(tensor)


def _taps() -> Any:
    # Only on the backend jax.
    return import_module("reprod_log.frameworks.jax.taps")


_KNOWN: Mapping[str, Callable[[], Backend]] = {"jax": _Jax, "torch": _Torch, "tensorflow": _Tensorflow}
_made: dict[str, Backend] = {}


def backend() -> Backend:
    """The backend that Keras was loaded with."""
    name = keras.backend.backend()
    if name not in _made:
        _made[name] = _KNOWN[name]()
    return _made[name]
