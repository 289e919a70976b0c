"""Models of Flax, Equinox and Haiku as programs, with the equations of their jaxprs as operators."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import Call, Capability, Cotangent, Listener, Program, Tensors, Trace
from reprod_log.frameworks.jax import operators
from reprod_log.frameworks.jax.engine import ENGINE
from reprod_log.frameworks.jax.jaxprs import Traced
from reprod_log.frameworks.jax.model import JaxModel, kept_by, model_of
from reprod_log.frameworks.jax.watching import JaxWatch
from reprod_log.frameworks.programs import Alone, Running, TreePrograms
from reprod_log.frameworks.side import Batch, Masks, Scope, Side
from reprod_log.frameworks.trees import Leaves, Optimizer
from reprod_log.recording import Array


class JaxTensors(Tensors):
    def is_tensor(self, value: object) -> bool:
        return isinstance(value, jax.Array)

    def view(self, tensor: Any) -> tuple[Array, bool]:
        if isinstance(tensor, jax.core.Tracer):
            raise UsageError(
                f"a JAX tracer ({tensor.aval}) has no values yet: it is inside jit, grad or vmap. "
                "Return the array from the transformed function and record it outside."
            )
        if jax.dtypes.issubdtype(tensor.dtype, jax.dtypes.prng_key):
            tensor = jax.random.key_data(tensor)
        # JAX uses the dtypes of ml_dtypes itself; on CPU this is a read-only view.
        return np.asarray(tensor), False

    def tensor(self, array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
        made = jax.numpy.asarray(array, dtype=dtype)
        return made if like is None else jax.device_put(made, like.device)


class JaxPrograms(TreePrograms):
    """Models of Flax, Equinox and Haiku: arrays over a tree or graph of modules."""

    can: frozenset[Capability] = frozenset(("gradient", "update", "float64", "isolate", "operators", "watch"))
    engine = ENGINE

    def owns(self, model: object) -> bool:
        return model_of(model) is not None

    def model_of(self, model: Any) -> JaxModel:
        found = model_of(model)
        if found is None:
            raise UsageError(f"a {type(model).__name__} is not a model of Flax, Equinox or Haiku")
        return found

    def with_state(self, model: Any, arrays: Mapping[str, Array]) -> Any:
        found = self.model_of(model)
        given = {path: jnp.asarray(one, found.arrays[path].dtype) for path, one in arrays.items()}
        made = found.given({**found.arrays, **given})
        return found.like(made) if isinstance(model, JaxModel) else made

    def is_optimizer(self, thing: object) -> bool:
        known = (("flax.nnx", "Optimizer"), ("optax", "GradientTransformation"))
        return any(isinstance(thing, getattr(sys.modules.get(home), name, ())) for home, name in known)

    def optimizer(self, made: Any, running: Running) -> Optimizer:
        return Transformation(made, running.of_training(running.arrays))

    def listening(self, listener: Listener) -> AbstractContextManager[None]:
        return JaxWatch(listener).on()

    def operators_of_call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Trace:
        with self.begun(side, replace(scope, dtype="float64")) as running:
            alone = Alone(running, path, call)
            weights = alone.weights(cotangent)

            def outputs(leaves: Leaves) -> dict[str, Any]:
                taps = running.taps()
                taps.masks = alone.draw
                return alone.outputs(leaves, taps)[0]

            return operators.trace(outputs, (alone.leaves,), weights or None)

    def operators_of_loss(self, side: Side, batch: Batch, scope: Scope) -> Trace:
        with self.begun(side, replace(scope, dtype="float64")) as running:
            inputs, targets = running.inputs(batch[0]), side.tensors(batch[1], "float64")

            def outputs(arrays: Any, inputs: Any) -> Any:
                taps = running.taps()
                taps.masks = running.draw(Masks())
                return running.called(arrays, inputs, taps)[0]

            given, _ = Traced(outputs, (running.arrays, inputs), wide=True)(running.arrays, inputs)
            return operators.trace(lambda ones, targets: {"": side.loss_of(ones, targets)}, (given, targets), None)

    def program(self, side: Side, batch: Batch, scope: Scope) -> Program:
        with self.begun(side, replace(scope, dtype="float64")) as running:
            inputs, targets = running.inputs(batch[0]), side.tensors(batch[1], "float64")
            taps = running.taps()
            taps.dropout = False

            def forward(arrays: Any, inputs: Any, targets: Any) -> dict[str, Any]:
                outputs = running.called(arrays, inputs, taps)[0]
                found = dict(self.engine.tensors_in(outputs, "output"))
                return found if side.loss is None else {**found, "loss": side.loss_of(outputs, targets)}

            return operators.recorded(
                forward,
                running.arrays,
                (inputs, targets),
                named=running.recorded,
                layers=partial(_own_layers, running, taps.modules),
            )


def _own_layers(running: Running, modules: Mapping[str, Any]) -> dict[str, str]:
    """Layers of the library itself that have arrays and no layers inside, by path with their type."""
    return {
        path: type(one).__name__
        for path, one in modules.items()
        if type(one).__module__.partition(".")[0] == running.model.package
        and any(name.startswith(f"{path}.") for name in running.recorded)
        and not any(other.startswith(f"{path}.") for other in modules)
    }


class Transformation(Optimizer):
    """A transformation of optax, or the one of an optimizer of NNX."""

    def __init__(self, made: Any, values: Mapping[str, Any]) -> None:
        made = getattr(made, "tx", made)
        if not (hasattr(made, "init") and hasattr(made, "update")):
            raise UsageError(
                f"the optimizer of the jax side is a {type(made).__name__}: give a transformation of optax, "
                "optimizer=lambda model: optax.adamw(1e-3)"
            )
        self._update, self._state = jax.jit(made.update), made.init(dict(values))
        self._paths = list(values)

    def step(self, values: Mapping[str, Any], gradients: Leaves) -> dict[str, Any]:
        before = {path: values[path] for path in self._paths}
        updates, self._state = self._update(dict(gradients), self._state, before)
        return {path: one + jnp.asarray(updates[path], one.dtype) for path, one in before.items()}

    def kept(self) -> Iterator[tuple[str, str, Any, Mapping[str, Any]]]:
        for path, role, one in kept_by(self._state):
            yield path, role, one, {}

    def described(self) -> dict[str, Any]:
        # The rate of a transformation cannot be read.
        return {"unknown_rates": True}
