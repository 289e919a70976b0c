"""Flax models as programs: a run is one jitted function a step, which gives every value and every gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np

from reprod_log.errors import CaptureError, UsageError
from reprod_log.frameworks.contract import Call, Capability, Cotangent, Evaluated, Framework, ModuleFacts, TensorFacts
from reprod_log.frameworks.defaults import DefaultPrograms
from reprod_log.frameworks.flax import nnx as models
from reprod_log.frameworks.flax.nnx import Parts, to_array
from reprod_log.frameworks.flax.taps import Place, Taps, is_array, is_floating, listening, name_of
from reprod_log.frameworks.module_tree import info_of
from reprod_log.frameworks.nests import flatten, is_portable, mapped
from reprod_log.frameworks.side import Batch, Scope, Side
from reprod_log.frameworks.tensors import cast_floating
from reprod_log.layers.lookup import column_of
from reprod_log.recording import Array, Key, Recording, current_provenance
from reprod_log.recording.recorder import Recorder

_STATES = {"mu": "exp_avg", "nu": "exp_avg_sq", "trace": "momentum_buffer"}
"""What optax keeps for each parameter, with the canonical names."""


class FlaxTensors:
    """Its tensors are those of JAX, which owns them."""

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, jax.Array)

    def view(self, tensor: Any) -> tuple[Array, bool]:
        return np.asarray(tensor), False

    def tensor(self, array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
        return jnp.asarray(array, dtype=dtype)

    def facts(self, tensor: Any) -> TensorFacts:
        return TensorFacts(tuple(tensor.shape), tensor.dtype.name, "cpu")


class FlaxPrograms(DefaultPrograms):
    """NNX modules: values of arrays over a graph of modules."""

    can: frozenset[Capability] = frozenset(("gradient", "update", "float64", "isolate"))

    def owns(self, model: object) -> bool:
        return models.is_model(model)

    def layers(self, model: Any) -> tuple[ModuleFacts, ...]:
        return models.facts_of(model)

    def state(self, model: Any) -> Mapping[str, Array]:
        parts = Parts(model)
        return {leaf.path: to_array(parts.arrays[leaf.path]) for leaf in parts.leaves if leaf.recorded}

    def with_state(self, model: Any, arrays: Mapping[str, Array]) -> Any:
        parts = Parts(model)
        given = {path: jnp.asarray(one, parts.arrays[path].dtype) for path, one in arrays.items()}
        return parts.together({**parts.arrays, **given})

    def run(self, side: Side, batches: Sequence[Batch], scope: Scope) -> Recording:
        with _precision(scope.dtype):
            return _Run(side, scope).recorded(batches)

    def calls(self, side: Side, batch: Batch) -> list[Call]:
        program = _Program(side, Scope())
        seen: list[tuple[str, Any]] = []
        tracers: list[Any] = []

        def number(leaf: Any) -> Any:
            if is_array(leaf):
                tracers.append(leaf)
                return _Numbered(len(tracers) - 1, leaf.shape, is_floating(leaf))
            return leaf

        def traced(arrays: Mapping[str, Any], inputs: Any) -> list[Any]:
            model = program.model(arrays)
            taps = program.taps(model)
            with listening(taps, program.classes):
                side.call(model, inputs)
            seen[:] = [(path, mapped(one, lambda _, leaf: number(leaf))) for path, one in taps.arguments.items()]
            return tracers

        values = jax.jit(traced)(program.arrays, side.tensors(batch[0], None))
        found = []
        for path, (args, kwargs, output) in seen:
            given = mapped(
                (args, kwargs), lambda _, leaf: to_array(values[leaf.place]) if isinstance(leaf, _Numbered) else leaf
            )
            leaves = flatten(output, "output")
            outputs = {role: one.shape for role, one in leaves if isinstance(one, _Numbered) and one.floating}
            if is_portable(given):
                found.append(Call(path, given[0], given[1], outputs))
        return found

    def call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Evaluated:
        with _precision(scope.dtype):
            return _alone(_Program(side, scope), path, call, cotangent)

    def evaluate(
        self, framework: Framework, function: Callable[..., Any], arguments: Sequence[Any], dtype: str | None
    ) -> Evaluated:
        with _precision(dtype):
            names, leaves, rebuild = _floats((tuple(arguments), {}), dtype)

            def total(given: list[Any]) -> tuple[Any, dict[str, Any]]:
                terms = dict(flatten(function(*rebuild(given)[0])))
                return sum(jnp.sum(one) for one in terms.values()), terms

            gradients, terms = jax.grad(total, has_aux=True)(leaves)
            return Evaluated(
                {role: to_array(term) for role, term in terms.items()},
                {name: to_array(one) for name, one in zip(names, gradients, strict=True)},
            )


class _Numbered:
    """Stands for an array of a traced call until its values are known."""

    def __init__(self, place: int, shape: tuple[int, ...], floating: bool) -> None:
        self.place, self.shape, self.floating = place, shape, floating


def _precision(dtype: str | None) -> AbstractContextManager[Any]:
    """float64 is switched off in JAX unless asked for."""
    return jax.enable_x64(True) if dtype == "float64" else nullcontext()


class _Program:
    """One side's model as a run of a scope begins, to be put together again inside a traced function."""

    def __init__(self, side: Side, scope: Scope) -> None:
        if isinstance(side.model, Mapping):
            raise UsageError("several models of flax by name cannot be run together; compare them one by one")
        self.side, self.scope = side, scope
        self._parts = Parts(side.model)
        given = {**self._parts.arrays, **{path: jnp.asarray(one) for path, one in scope.state.items()}}
        self.arrays = {
            leaf.path: jnp.asarray(given[leaf.path], scope.dtype)
            if scope.dtype is not None and leaf.recorded and is_floating(given[leaf.path])
            else given[leaf.path]
            for leaf in self._parts.leaves
        }
        self.trained = frozenset(leaf.path for leaf in self._parts.leaves if leaf.trained)
        self.recorded = frozenset(leaf.path for leaf in self._parts.leaves if leaf.recorded)
        self.classes = {
            cls for _, one in models.modules_of(side.model) for cls in type(one).__mro__ if "__call__" in vars(cls)
        } - {object}

    def model(self, arrays: Mapping[str, Any]) -> Any:
        made = self._parts.together(arrays)
        if self.scope.evaluation:
            made.eval()
        models.with_settings(made, self.scope.settings)
        if self.scope.dtype is not None:
            models.widened(made, self.scope.dtype)
        models.refuse_randomness(made)
        return made

    def taps(self, model: Any, zeros: Mapping[str, Any] | None = None) -> Taps:
        return Taps({id(one): path for path, one in models.modules_of(model)}, zeros)

    def taken(self, model: Any) -> dict[str, Any]:
        return self._parts.taken(model)


class _Run:
    """All steps of one run, recorded."""

    def __init__(self, side: Side, scope: Scope) -> None:
        self.side, self.scope, self.program = side, scope, _Program(side, scope)
        self.recorder = Recorder(spool=scope.spool)
        self._shapes: dict[str, Any] = {}
        """The shapes of what the taps give, by those of the batch."""
        self.places: list[tuple[Place, str]] = []
        """What the taps give, in the order of execution, with the type of the module; known after a trace."""
        self.step = jax.jit(self._forward if side.loss is None else self._backward)
        if side.step is not None:
            raise UsageError("models of flax are run with loss= and optimizer=, not with a step of one's own")

    def recorded(self, batches: Sequence[Batch]) -> Recording:
        arrays = self.program.arrays
        tx = self._transformation()
        state = None if tx is None else tx.init(self._trained(arrays))
        for number, (inputs, targets) in enumerate(batches):
            given = self.side.tensors(inputs, self.scope.dtype), self.side.tensors(targets, self.scope.dtype)
            put = _Put(self.recorder, replace(self.scope, phases=self._phases(number)), number)
            for role, leaf in flatten(given[0], "input"):
                if is_array(leaf):
                    put("data", "", leaf, role, 0)
            result = self.step(arrays, {} if self.side.loss is None else self._zeros(arrays, given), given)
            self._put_values(put, result)
            arrays = dict(result["arrays"])
            if tx is not None:
                before = self._trained(arrays)
                own = self.scope.gradients.get(number, {})
                own = {path: jnp.asarray(one, before[path].dtype) for path, one in own.items()}
                updates, state = tx.update({**result["gradients"], **own}, state, before)
                arrays |= {path: before[path] + updates[path] for path in before}
                for path in before:
                    put("update", path, to_array(arrays[path]) - to_array(before[path]))
            for path in sorted(self.program.recorded):
                put("parameter" if path in self.program.trained else "buffer", path, arrays[path])
            for path, role, one in _kept(state):
                put("optimizer", path, one, role)
        extra = {"unknown_rates": True} if tx is not None else {}
        dtype = self.scope.dtype or "float32"
        made = current_provenance(
            framework="flax", framework_version=flax.__version__, device="cpu", dtype=dtype, extra=extra
        )
        self.recorder.describe(made, [info_of(one, "flax") for one in models.facts_of(self.side.model)])
        return self.recorder.close()

    def _put_values(self, put: _Put, result: Mapping[str, Any]) -> None:
        """What the modules gave, the loss, and the gradients of both."""
        for place, type_name in self.places:
            put("forward", place[0], result["values"][name_of(place)], place[2], place[1], type_name)
        if "loss" not in result:
            return
        put("loss", "loss", result["loss"])
        for place, type_name in reversed(self.places):
            if name_of(place) in result["backward"]:
                put("backward", place[0], result["backward"][name_of(place)], place[2], place[1], type_name)
        for path, one in result["gradients"].items():
            put("gradient", path, one, "raw")

    def _trained(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {path: arrays[path] for path in arrays if path in self.program.trained}

    def _phases(self, number: int) -> Sequence[str] | None:
        full = self.scope.full_steps
        return self.scope.brief if full is not None and number >= full else self.scope.phases

    def _transformation(self) -> Any:
        # A transformation of optax is a tuple itself, so it is not taken for an optimizer with its scheduler.
        made = None if self.side.optimizer is None else self.side.optimizer(self.side.model)
        made = getattr(made, "tx", made)
        if made is not None and not (hasattr(made, "init") and hasattr(made, "update")):
            raise UsageError(
                f"the optimizer of the flax side is a {type(made).__name__}: give a transformation of optax, "
                "optimizer=lambda model: optax.adamw(1e-3)"
            )
        return made

    def _called(self, arrays: Mapping[str, Any], zeros: Mapping[str, Any] | None, given: Any) -> tuple[Any, Taps, Any]:
        model = self.program.model(arrays)
        taps = self.program.taps(model, zeros)
        with listening(taps, self.program.classes):
            outputs = self.side.call(model, given[0])
        self.places = [(place, taps.types[place[0]]) for place in taps.values]
        return outputs, taps, model

    def _forward(self, arrays: Mapping[str, Any], zeros: Mapping[str, Any], given: Any) -> dict[str, Any]:
        _, taps, model = self._called(arrays, None, given)
        return {"values": _by_name(taps), "arrays": self.program.taken(model)}

    def _zeros(self, arrays: Mapping[str, Any], given: Any) -> dict[str, Any]:
        """What is added to each floating output, of its shape."""
        size = str(jax.tree.map(jnp.shape, given))
        if size not in self._shapes:
            self._shapes[size] = jax.eval_shape(self._forward, arrays, {}, given)["values"]
        return {
            name: jnp.zeros(one.shape, one.dtype)
            for name, one in self._shapes[size].items()
            if ":output" in name and jnp.issubdtype(one.dtype, jnp.floating)
        }

    def _backward(self, arrays: Mapping[str, Any], zeros: Mapping[str, Any], given: Any) -> dict[str, Any]:
        def loss(trained: Mapping[str, Any], zeros: Mapping[str, Any]) -> tuple[Any, Any]:
            outputs, taps, model = self._called({**arrays, **trained}, zeros, given)
            value = self.side.loss_of(outputs, given[1])
            if jnp.size(value) != 1:
                raise UsageError(
                    f"the loss of the flax side has the shape {list(jnp.shape(value))}, and a backward pass begins at "
                    "one number. Reduce it, e.g. with .mean()"
                )
            return jnp.reshape(value, ()), (_by_name(taps), self.program.taken(model))

        found = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(self._trained(arrays), zeros)
        (value, (values, after)), (gradients, backward) = found
        return {"loss": value, "values": values, "arrays": after, "gradients": gradients, "backward": backward}


def _by_name(taps: Taps) -> dict[str, Any]:
    return {name_of(place): value for place, value in taps.values.items()}


class _Put:
    """Takes the arrays of one step."""

    def __init__(self, recorder: Recorder, scope: Scope, step: int) -> None:
        self._recorder, self._scope, self._step = recorder, scope, step

    def __call__(
        self, phase: str, path: str, array: Any, role: str = "", call: int | None = None, layer_type: str = ""
    ) -> None:
        if self._scope.phases is None or phase in self._scope.phases:
            key = Key(path, phase, self._step, call, role, self._scope.run)
            self._recorder.add(key, to_array(array), layer_type=layer_type)


def _kept(state: Any) -> Iterator[tuple[str, str, Any]]:
    """What an optimizer of optax keeps for each parameter, by path and canonical name."""
    for one in jax.tree.leaves(
        state, is_leaf=lambda node: hasattr(node, "_fields") and bool(set(node._fields) & set(_STATES))
    ):
        for name in getattr(one, "_fields", ()):
            kept = getattr(one, name)
            if name in _STATES and isinstance(kept, dict):
                for path, array in kept.items():
                    yield path, _STATES[name], array


def _floats(given: Any, dtype: str | None) -> tuple[list[str], list[Any], Callable[[list[Any]], Any]]:
    """The floating arrays of what a function is called with, their roles, and how others are put into their places."""
    arrays = mapped(
        given, lambda _, leaf: jnp.asarray(cast_floating(leaf, dtype)) if isinstance(leaf, np.ndarray) else leaf
    )
    args, kwargs = arrays
    found = [(name, leaf) for name, leaf in (*flatten(args, "input"), *flatten(kwargs, "input"))]
    floats = {name: leaf for name, leaf in found if is_array(leaf) and is_floating(leaf)}

    def rebuild(leaves: list[Any]) -> Any:
        values = dict(zip(floats, leaves, strict=True))
        put = lambda name, leaf: values.get(name, leaf)  # noqa: E731
        return mapped(args, put, "input"), mapped(kwargs, put, "input")

    return list(floats), list(floats.values()), rebuild


def _alone(program: _Program, path: str, call: Call, cotangent: Cotangent) -> Evaluated:
    """One module alone, forward and backward."""
    facts = next((one for one in models.facts_of(program.side.model) if one.path == path), None)
    if facts is None:
        raise CaptureError("the model has no such module")
    column = column_of(info_of(facts, "flax"))
    last = column is not None and column.channels_last(facts.settings)
    given = mapped((call.args, dict(call.kwargs)), lambda _, leaf: _moved_in(leaf) if last else leaf)
    names, leaves, rebuild = _floats(given, program.scope.dtype)
    front = f"{path}." if path else ""
    trained = {name: one for name, one in program.arrays.items() if name in program.trained and name.startswith(front)}
    roles: list[str] = []

    def run(weights: Mapping[str, Any], floats: list[Any]) -> tuple[list[Any], Any]:
        model = program.model({**program.arrays, **weights})
        args, kwargs = rebuild(floats)
        output = dict(models.modules_of(model))[path](*args, **kwargs)
        found = [(role, leaf) for role, leaf in flatten(output, "output") if is_array(leaf)]
        roles[:] = [role for role, _ in found]
        return [leaf for _, leaf in found], program.taken(model)

    shapes, _ = jax.eval_shape(run, trained, leaves)
    weights = [_weight(cotangent, role, one, last) for role, one in zip(roles, shapes, strict=True)]
    backward = any(one is not None for one in weights)
    full = [
        jnp.zeros(one.shape, one.dtype) if given is None else given for one, given in zip(shapes, weights, strict=True)
    ]

    def both(weights: Mapping[str, Any], floats: list[Any], full: list[Any]) -> Any:
        if not backward:
            return (*run(weights, floats), ({}, []))
        outputs, back, after = jax.vjp(run, weights, floats, has_aux=True)
        return outputs, after, back(full)

    outputs, after, (own, inner) = jax.jit(both)(trained, leaves, full)
    gradients = (
        {name: to_array(one) for name, one in zip(names, inner, strict=False)},
        {name.removeprefix(front): to_array(one) for name, one in own.items()},
    )
    buffers = {
        name.removeprefix(front): to_array(one)
        for name, one in after.items()
        if name.startswith(front) and name in program.recorded - program.trained and is_floating(one)
    }
    results = {role: to_array(one) for role, one in zip(roles, outputs, strict=True)}
    return Evaluated(results, *gradients, buffers, facts.classes[0].rpartition(".")[2])


def _moved_in(leaf: Any) -> Any:
    """An array of another framework with its channels where a layer of flax has them."""
    return np.moveaxis(leaf, 1, -1) if isinstance(leaf, np.ndarray) and leaf.ndim >= 3 else leaf


def _weight(cotangent: Cotangent, role: str, output: Any, last: bool) -> Any:
    if not is_floating(output):
        return None
    shape = tuple(output.shape)
    if last and len(shape) >= 3:
        weight = cotangent(role, (shape[0], shape[-1], *shape[1:-1]))
        return None if weight is None else jnp.asarray(np.moveaxis(weight, 1, -1), output.dtype)
    weight = cotangent(role, shape)
    return None if weight is None else jnp.asarray(weight, output.dtype)
