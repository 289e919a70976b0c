"""JAX models as programs: a run is one jitted function a step, which gives every value and every gradient."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reprod_log.errors import CaptureError, UsageError
from reprod_log.frameworks.contract import (
    Call,
    Capability,
    Cotangent,
    Evaluated,
    Framework,
    Listener,
    ModuleFacts,
    Program,
    Programs,
    Trace,
)
from reprod_log.frameworks.jax import operators
from reprod_log.frameworks.jax.jaxprs import Traced
from reprod_log.frameworks.jax.model import Model, Started, kept_by, model_of, owned, set_setting, to_array
from reprod_log.frameworks.jax.taps import Taps, arrays_in, is_array, is_floating
from reprod_log.frameworks.module_tree import info_of
from reprod_log.frameworks.nests import filled, flatten, is_portable, mapped
from reprod_log.frameworks.side import Batch, Masks, Scope, Side, check_number
from reprod_log.frameworks.tensors import cast_floating
from reprod_log.frameworks.values import Channels, Put, name_of, place_of
from reprod_log.layers.lookup import column_of
from reprod_log.progress import each
from reprod_log.recording import Array, ModuleInfo, Recording, current_provenance
from reprod_log.recording.recorder import Recorder


class JaxPrograms(Programs):
    """Models of Flax, Equinox and Haiku: arrays over a tree or graph of modules."""

    can: frozenset[Capability] = frozenset(("gradient", "update", "float64", "isolate", "operators", "watch"))

    def owns(self, model: object) -> bool:
        return model_of(model) is not None

    def layers(self, model: Any) -> tuple[ModuleFacts, ...]:
        return owned(model).facts()

    def state(self, model: Any) -> Mapping[str, Array]:
        found = owned(model)
        return {leaf.path: to_array(found.arrays[leaf.path]) for leaf in found.leaves if leaf.recorded}

    def with_state(self, model: Any, arrays: Mapping[str, Array]) -> Any:
        found = owned(model)
        given = {path: jnp.asarray(one, found.arrays[path].dtype) for path, one in arrays.items()}
        made = found.given({**found.arrays, **given})
        return found.like(made) if isinstance(model, Model) else made

    def called_once(self, side: Side, batch: Batch) -> Any:
        running, taps = Running(side, Scope()), Taps(dropout=False)
        if None not in running.owned.modules().values():
            return side.model

        def called(arrays: Any, inputs: Any) -> None:
            running.called(arrays, inputs, taps)

        jax.eval_shape(called, running.arrays, side.tensors(batch[0], None))
        return running.owned.built(taps.modules)

    watched_module = "flax.nnx"

    def is_optimizer(self, thing: object) -> bool:
        return isinstance(thing, getattr(sys.modules.get("flax.nnx"), "Optimizer", ()))

    def listening(self, listener: Listener) -> AbstractContextManager[None]:
        # NNX is looked at only where a program has loaded it.
        watch: AbstractContextManager[None] = import_module(f"{__package__}.watching").Watch(listener).on()
        return watch

    def settle(self) -> None:
        jax.effects_barrier()

    def run(self, side: Side, batches: Sequence[Batch], scope: Scope) -> Recording:
        with _precision(scope.dtype):
            return _Run(side, scope).recorded(batches)

    def calls(self, side: Side, batch: Batch) -> list[Call]:
        return list(_first_calls(Running(side, Scope()), side.tensors(batch[0], None)))

    def call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Evaluated:
        with _precision(scope.dtype):
            return _Alone(Running(side, scope), path, call).evaluated(cotangent)

    def evaluate(
        self, framework: Framework, function: Callable[..., Any], arguments: Sequence[Any], dtype: str | None
    ) -> Evaluated:
        with _precision(dtype):
            names, leaves, rebuild = _floats((tuple(arguments), {}), dtype)

            def total(given: list[Any]) -> tuple[Any, dict[str, Any]]:
                terms = dict(flatten(function(*rebuild(given)[0])))
                return sum(jnp.sum(one) for one in terms.values()), terms

            gradients, terms = Traced(jax.grad(total, has_aux=True), (leaves,), wide=dtype == "float64")(leaves)[0]
            return Evaluated(
                {role: to_array(term) for role, term in terms.items()},
                {name: to_array(one) for name, one in zip(names, gradients, strict=True)},
            )

    def operators_of_call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Trace:
        with _precision("float64"):
            alone = _Alone(Running(side, replace(scope, dtype="float64")), path, call)
            shapes = alone.shapes()
            return operators.trace(alone.outputs, (alone.trained, alone.leaves), alone.weights(cotangent, shapes))

    def operators_of_loss(self, side: Side, batch: Batch, scope: Scope) -> Trace:
        with _precision("float64"):
            running = Running(side, replace(scope, dtype="float64"))
            inputs, targets = (side.tensors(one, "float64") for one in batch)

            def outputs(arrays: Any, inputs: Any) -> Any:
                return running.called(arrays, inputs, Taps(partial(_mask, Masks())))[0]

            given, _ = Traced(outputs, (running.arrays, inputs), wide=True)(running.arrays, inputs)
            leaves, tree = jax.tree.flatten(given)
            return operators.trace(
                lambda ones, targets: [side.loss_of(jax.tree.unflatten(tree, ones), targets)], (leaves, targets), None
            )

    def program(self, side: Side, batch: Batch, scope: Scope) -> Program:
        with _precision("float64"):
            running = Running(side, replace(scope, dtype="float64"))
            inputs, targets = (side.tensors(one, "float64") for one in batch)

            taps = Taps(dropout=False)

            def forward(arrays: Any, inputs: Any, targets: Any) -> dict[str, Any]:
                outputs = running.called(arrays, inputs, taps)[0]
                found = dict(arrays_in(outputs, "output"))
                return found if side.loss is None else {**found, "loss": side.loss_of(outputs, targets)}

            return operators.recorded(
                forward,
                running.arrays,
                (inputs, targets),
                named=running.recorded,
                layers=lambda: running.own_layers(taps.modules),
            )


def _precision(dtype: str | None) -> AbstractContextManager[Any]:
    """float64 is switched off in JAX unless asked for."""
    return jax.enable_x64(True) if dtype == "float64" else nullcontext()


class Running:
    """One side's model as a run of a scope begins, to be put together again inside a traced function."""

    def __init__(self, side: Side, scope: Scope) -> None:
        self.side, self.scope, self.owned = side, scope, owned(side.model)
        given = {**self.owned.arrays, **{path: jnp.asarray(one) for path, one in scope.state.items()}}
        self.arrays = {
            leaf.path: jnp.asarray(given[leaf.path], scope.dtype)
            if scope.dtype is not None and leaf.recorded and is_floating(given[leaf.path])
            else given[leaf.path]
            for leaf in self.owned.leaves
        }
        self.trained = frozenset(leaf.path for leaf in self.owned.leaves if leaf.trained)
        self.recorded = frozenset(leaf.path for leaf in self.owned.leaves if leaf.recorded)

    @property
    def wide(self) -> bool:
        return self.scope.dtype == "float64"

    def started(self, arrays: Mapping[str, Any]) -> Started:
        return self.owned.start(arrays, self.scope)

    def called(self, arrays: Mapping[str, Any], inputs: Any, taps: Taps) -> tuple[Any, Mapping[str, Any]]:
        """What the model makes of the inputs, and its arrays after that."""
        started = self.started(arrays)
        taps.settings, taps.set_setting = self.scope.settings, set_setting
        with started.listening(taps):
            outputs = self.side.call(started, inputs)
        return outputs, {**arrays, **started.after()}

    def own_layers(self, modules: Mapping[str, Any]) -> dict[str, str]:
        """Layers of the library itself that have arrays and no layers inside, by path with their type."""
        return {
            path: type(one).__name__
            for path, one in modules.items()
            if type(one).__module__.partition(".")[0] == self.owned.package
            and any(name.startswith(f"{path}.") for name in self.recorded)
            and not any(other.startswith(f"{path}.") for other in modules)
        }

    def infos(self, modules: Mapping[str, Any] | None = None) -> list[ModuleInfo]:
        library = self.owned if modules is None else self.owned.built(modules)
        return [info_of(one, library.package) for one in library.facts()]


class _Run:
    """All steps of one run, recorded."""

    def __init__(self, side: Side, scope: Scope) -> None:
        self.side, self.scope, self.running = side, scope, Running(side, scope)
        if side.step is not None:
            raise UsageError("models of JAX are run with loss= and optimizer=, not with a step of one's own")
        self.recorder = Recorder(spool=scope.spool)
        self.taps = Taps()
        """Those of the last trace."""
        self._traced: dict[str, tuple[Traced, Taps]] = {}
        self._update: Any = None

    def recorded(self, batches: Sequence[Batch]) -> Recording:
        arrays: dict[str, Any] = dict(self.running.arrays)
        tx = self._transformation()
        state = None if tx is None else tx.init(self._of_training(arrays))
        self._update = None if tx is None else jax.jit(tx.update)
        masks = Masks()
        for number, (inputs, targets) in enumerate(each("progress.steps", batches)):
            given = self.side.tensors(inputs, self.scope.dtype), self.side.tensors(targets, self.scope.dtype)
            put = Put(self.recorder, self.scope, number, to_array)
            for role, leaf in arrays_in(given[0], "input"):
                put("data", "", leaf, role, 0)
            arrays |= self._instead(number, arrays)
            result, values = self._step(arrays, given, masks, number)
            self._put_values(put, result, values)
            arrays = dict(result["arrays"])
            if tx is not None:
                state = self._updated(put, number, arrays, result["gradients"], state)
            for path in sorted(self.running.recorded):
                put("parameter" if path in self.running.trained else "buffer", path, arrays[path])
            for path, role, one in kept_by(state):
                put("optimizer", path, one, role)
            masks.next_step()
        extra = {"unknown_rates": True} if tx is not None else {}
        dtype = self.scope.dtype or "float32"
        package = self.running.owned.package
        version = str(getattr(sys.modules[package], "__version__", ""))
        made = current_provenance(framework=package, framework_version=version, device="cpu", dtype=dtype, extra=extra)
        self.recorder.describe(made, self.running.infos(self.taps.modules))
        return self.recorder.close()

    def _instead(self, number: int, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters that stand in for its own when this step begins."""
        given = {} if self.scope.stand_ins is None else self.scope.stand_ins.parameters.get(number, {})
        return {path: jnp.asarray(one, arrays[path].dtype) for path, one in given.items() if path in arrays}

    def _step(self, arrays: Any, given: Any, masks: Masks, number: int) -> tuple[Any, dict[str, Any]]:
        """One step's results, and what its modules take and give."""
        fed = self._fed(number)
        shapes = str(jax.tree.map(lambda one: (jnp.shape(one), str(jnp.result_type(one))), (given, fed)))
        if shapes not in self._traced:
            asking = Taps()
            jax.eval_shape(partial(self._taken, asking), arrays, given, None, fed)
            drawn = [np.zeros(shape, np.float32) for shape, _ in asking.asked]
            taps = Taps()
            args = (arrays, given, drawn, fed)
            self._traced[shapes] = Traced(partial(self._taken, taps), args, wide=self.running.wide), taps
        traced, self.taps = self._traced[shapes]
        drawn = [jnp.asarray(_mask(masks, shape, rate)) for shape, rate in self.taps.asked]
        return traced(arrays, given, drawn, fed)

    def _fed(self, number: int) -> dict[str, dict[str, Array]]:
        stand_ins = self.scope.stand_ins
        if stand_ins is None:
            return {"outputs": {}, "gradients": {}}
        found = {"outputs": stand_ins.outputs, "gradients": stand_ins.gradients}
        return {
            kind: {name_of((key.path, key.call or 0, key.role)): one for key, one in some.items() if key.step == number}
            for kind, some in found.items()
        }

    def _taken(self, taps: Taps, arrays: Any, given: Any, masks: Any, fed: Any) -> dict[str, Any]:
        """One step as a function of arrays alone."""
        taps.masks, taps.outputs, taps.gradients = masks, fed["outputs"], fed["gradients"]
        if self.side.loss is None:
            return {"arrays": self.running.called(arrays, given[0], taps)[1]}

        def loss(trained: Mapping[str, Any]) -> tuple[Any, Any]:
            outputs, after = self.running.called({**arrays, **trained}, given[0], taps)
            value = self.side.loss_of(outputs, given[1])
            check_number(jnp.asarray(value), "jax")
            return jnp.reshape(value, ()), after

        (value, after), gradients = jax.value_and_grad(loss, has_aux=True)(self._of_training(arrays))
        return {"loss": value, "arrays": after, "gradients": gradients}

    def _put_values(self, put: Put, result: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """What the modules gave, the loss, and the gradients of both."""
        types = {path: type(one).__name__ for path, one in self.taps.modules.items()}
        back = {name.removeprefix("gradient "): one for name, one in values.items() if name.startswith("gradient ")}
        forward = ((place_of(name), one) for name, one in values.items() if not name.startswith("gradient "))
        put.layers("forward", forward, types)
        if "loss" not in result:
            return
        put("loss", "loss", result["loss"])
        put.layers("backward", ((place_of(name), one) for name, one in back.items() if ":output" in name), types)
        own = {} if not self.scope.record_given else self.scope.gradients.get(put.step, {})
        for path, one in result["gradients"].items():
            put("gradient", path, own.get(path, one), "raw")

    def _updated(self, put: Put, number: int, arrays: dict[str, Any], gradients: Any, state: Any) -> Any:
        before = self._of_training(arrays)
        own = self.scope.gradients.get(number, {})
        own = {path: jnp.asarray(one, before[path].dtype) for path, one in own.items()}
        updates, state = self._update({**gradients, **own}, state, before)
        for path, one in before.items():
            arrays[path] = one + jnp.asarray(updates[path], one.dtype)
            put("update", path, to_array(arrays[path]) - to_array(one))
        return state

    def _of_training(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {path: arrays[path] for path in arrays if path in self.running.trained}

    def _transformation(self) -> Any:
        # A transformation of optax is a tuple itself, so it is not taken for an optimizer with its scheduler.
        made = None if self.side.optimizer is None else self.side.optimizer(self.side.model)
        made = getattr(made, "tx", made)
        if made is not None and not (hasattr(made, "init") and hasattr(made, "update")):
            raise UsageError(
                f"the optimizer of the jax side is a {type(made).__name__}: give a transformation of optax, "
                "optimizer=lambda model: optax.adamw(1e-3)"
            )
        return made


def _mask(masks: Masks, shape: tuple[int, ...], rate: float) -> Array:
    """The next shared mask: of images it is drawn with the channels first, as the other frameworks have them."""
    if len(shape) < 4:
        return masks.draw(shape, rate)
    return np.moveaxis(masks.draw((shape[0], shape[-1], *shape[1:-1]), rate), 1, -1)


# ---- one module alone -----------------------------------------------------------------------------------------------


def _first_calls(running: Running, inputs: Any) -> Iterator[Call]:
    """The first call of every module, as all frameworks would write it: with channels before the space."""
    taps = Taps(masks=partial(_mask, Masks()))
    traced = Traced(lambda arrays, given: running.called(arrays, given, taps)[0], (running.arrays, inputs), wide=False)
    _, values = traced(running.arrays, inputs)
    channels = {one.path: _channels(one) for one in running.infos(taps.modules)}
    for path, (args, kwargs, output) in taps.arguments.items():
        own = channels.get(path, Channels())

        def array(role: str, leaf: Any, path: str = path, own: Channels = own) -> Any:
            return own.outward(to_array(values[name_of((path, 0, role))])) if is_array(leaf) else leaf

        given = mapped(args, array, "input"), mapped(kwargs, array, "input")
        shown = ((role, values[name_of((path, 0, role))]) for role, _ in arrays_in(output, "output"))
        if is_portable(given):
            yield Call(path, *given, {role: own.first(tuple(one.shape)) for role, one in shown if is_floating(one)})


def _channels(module: ModuleInfo) -> Channels:
    column = column_of(module)
    last = column is not None and column.channels_last(module.settings)
    return Channels(lambda axes: last and axes >= 3)


class _Alone:
    """One module alone, forward and backward."""

    def __init__(self, running: Running, path: str, call: Call) -> None:
        self._running, self._path = running, path
        self.info = next((one for one in running.infos() if one.path == path), None)
        if self.info is None:
            raise CaptureError("the model has no such module")
        self._channels = _channels(self.info)
        given = mapped((call.args, dict(call.kwargs)), lambda _, leaf: self._channels.inward(leaf))
        self._names, self.leaves, self._rebuild = _floats(given, running.scope.dtype)
        front = f"{path}." if path else ""
        self.trained = {
            name: one for name, one in running.arrays.items() if name in running.trained and name.startswith(front)
        }
        self._front = front
        self._roles: list[str] = []

    def outputs(self, weights: Mapping[str, Any], floats: list[Any]) -> list[Any]:
        return self._outputs(weights, floats)[0]

    def _outputs(self, weights: Mapping[str, Any], floats: list[Any]) -> tuple[list[Any], Any]:
        started = self._running.started({**self._running.arrays, **weights})
        args, kwargs = self._rebuild(floats)
        taps = Taps(partial(_mask, Masks()), settings=self._running.scope.settings, set_setting=set_setting)
        with started.listening(taps):
            found = arrays_in(started.part(self._path)(*args, **kwargs), "output")
        self._roles = [role for role, _ in found]
        return [leaf for _, leaf in found], started.after()

    def shapes(self) -> list[Any]:
        found: list[Any] = jax.eval_shape(self._outputs, self.trained, self.leaves)[0]
        return found

    def weights(self, cotangent: Cotangent, shapes: list[Any]) -> list[Any] | None:
        """What the outputs are weighted with for the backward pass; None where nothing goes back."""
        given = [
            self._channels.cotangent(cotangent, role, tuple(one.shape)) if is_floating(one) else None
            for role, one in zip(self._roles, shapes, strict=True)
        ]
        if all(one is None for one in given):
            return None
        return [
            jnp.zeros(one.shape, one.dtype) if weight is None else jnp.asarray(weight, one.dtype)
            for one, weight in zip(shapes, given, strict=True)
        ]

    def evaluated(self, cotangent: Cotangent) -> Evaluated:
        assert self.info is not None
        full = self.weights(cotangent, self.shapes())

        def both(weights: Mapping[str, Any], floats: list[Any], full: list[Any] | None) -> Any:
            if full is None:
                return (*self._outputs(weights, floats), ({}, []))
            outputs, back, after = jax.vjp(self._outputs, weights, floats, has_aux=True)
            return outputs, after, back(full)

        args = self.trained, self.leaves, full
        (outputs, after, (own, inner)), _ = Traced(both, args, wide=self._running.wide)(*args)
        buffers = {
            name.removeprefix(self._front): to_array(one)
            for name, one in after.items()
            if name.startswith(self._front) and name in self._running.recorded - self._running.trained
            if is_floating(one)
        }
        return Evaluated(
            {role: to_array(one) for role, one in zip(self._roles, outputs, strict=True)},
            {name: to_array(one) for name, one in zip(self._names, inner, strict=False)},
            {name.removeprefix(self._front): to_array(one) for name, one in own.items()},
            buffers,
            self.info.type,
        )


def _floats(given: Any, dtype: str | None) -> tuple[list[str], list[Any], Callable[[list[Any]], Any]]:
    """The floating arrays of what a function is called with, their roles, and how others are put into their places."""
    args, kwargs = mapped(
        given, lambda _, leaf: jnp.asarray(cast_floating(leaf, dtype)) if isinstance(leaf, np.ndarray) else leaf
    )
    found = (*arrays_in(args, "input"), *arrays_in(kwargs, "input"))
    floats = {name: leaf for name, leaf in found if is_floating(leaf)}

    def rebuild(leaves: list[Any]) -> Any:
        values = dict(zip(floats, leaves, strict=True))
        return filled(args, values, "input"), filled(kwargs, values, "input")

    return list(floats), list(floats.values()), rebuild
