"""Programs over trees: runs, first calls and single modules of models that are values, by the engine of each."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from reprod_log.errors import CaptureError, UsageError
from reprod_log.frameworks.contract import Call, Cotangent, Draw, Evaluated, Framework, ModuleFacts, Programs
from reprod_log.frameworks.nests import filled, flatten, is_portable, mapped
from reprod_log.frameworks.side import Batch, Masks, Scope, Side, arguments_of, check_number
from reprod_log.frameworks.tensors import cast_floating
from reprod_log.frameworks.trees import Computed, Engine, Leaves, Model, Optimizer, Taps
from reprod_log.frameworks.values import Channels, Place, Put
from reprod_log.messages import message
from reprod_log.progress import each
from reprod_log.recording import Array, ModuleInfo, Recording, current_provenance
from reprod_log.recording.recorder import Recorder

OPTIMIZER = "optimizer"
"""What the only optimizer of a run is called."""


class TreePrograms(Programs):
    """Models whose framework has an engine."""

    engine: Engine
    taps: type[Taps] = Taps

    @abstractmethod
    def model_of(self, model: Any) -> Model:
        """The model as it is known here; UsageError when it cannot be run."""

    @abstractmethod
    def optimizer(self, made: Any, running: Running) -> Optimizer:
        """An optimizer that a side has made, at the start of a run."""

    def layers(self, model: Any) -> tuple[ModuleFacts, ...]:
        return self.model_of(model).facts()

    def state(self, model: Any) -> Mapping[str, Array]:
        found = self.model_of(model)
        return {leaf.path: self.engine.to_array(found.arrays[leaf.path]) for leaf in found.leaves if leaf.recorded}

    @contextmanager
    def begun(self, side: Side, scope: Scope) -> Iterator[Running]:
        """While it lasts, a side can be run in a scope."""
        if isinstance(side.model, dict):
            raise UsageError(
                f"several models of {self.engine.name} by name cannot be run together; compare them one by one"
            )
        if side.step is not None:
            raise UsageError(
                f"models of {self.engine.name} are run with loss= and optimizer=, not with a step of one's own"
            )
        model = self.model_of(side.model)
        with self.engine.precision(scope.dtype), model.opened(scope):
            yield Running(self, side, scope, model)

    def called_once(self, side: Side, batch: Batch) -> Any:
        with self.begun(side, Scope()) as running:
            if None not in running.model.modules().values():
                return side.model
            taps = self.taps(self.engine, dropout=False)
            self.engine.shapes(
                lambda arrays, inputs: running.called(arrays, inputs, taps)[1],
                running.arrays,
                running.inputs(batch[0]),
            )
            return running.model.built(taps.modules)

    def settle(self) -> None:
        self.engine.settle()

    def run(self, side: Side, batches: Sequence[Batch], scope: Scope) -> Recording:
        with self.begun(side, scope) as running:
            return _Run(running).recorded(batches)

    def calls(self, side: Side, batch: Batch) -> list[Call]:
        with self.begun(side, Scope()) as running:
            return list(_first_calls(running, running.inputs(batch[0])))

    def call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Evaluated:
        with self.begun(side, scope) as running:
            return Alone(running, path, call).evaluated(cotangent)

    def evaluate(
        self, framework: Framework, function: Callable[..., Any], arguments: Sequence[Any], dtype: str | None
    ) -> Evaluated:
        engine = self.engine

        def total(leaves: Leaves, given: Any, taps: Taps) -> tuple[Any, Any]:
            terms = dict(flatten(function(*filled(given, leaves, "input"))))
            return sum(engine.sum(one) for one in terms.values()), terms

        with engine.precision(dtype):
            given = mapped(tuple(arguments), lambda _, leaf: as_tensor(engine, leaf, dtype), "input")
            floats = {role: leaf for role, leaf in engine.tensors_in(given, "input") if engine.is_floating(leaf)}
            run = engine.prepared(total, lambda: self.taps(engine), backward=True, wide=dtype == "float64")
            found = run(floats, given, Masks().draw)
            return Evaluated(arrays(engine, found.result), arrays(engine, found.gradients))


def as_tensor(engine: Engine, leaf: Any, dtype: str | None) -> Any:
    return engine.tensor(cast_floating(leaf, dtype)) if isinstance(leaf, np.ndarray) else leaf


def arrays(engine: Engine, tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: engine.to_array(one) for name, one in tensors.items()}


class Running:
    """One side's model as a run of a scope begins, to be put together again for every pass."""

    def __init__(self, programs: TreePrograms, side: Side, scope: Scope, model: Model) -> None:
        self.programs, self.side, self.scope, self.model = programs, side, scope, model
        self.engine = programs.engine
        given = {**model.arrays, **scope.state}
        self.arrays = {
            leaf.path: self.engine.cast(given[leaf.path], scope.dtype) if leaf.recorded else given[leaf.path]
            for leaf in model.leaves
        }
        self.trained = frozenset(leaf.path for leaf in model.leaves if leaf.trained)
        self.recorded = frozenset(leaf.path for leaf in model.leaves if leaf.recorded)
        self.has_moved = False
        """Whether inputs were arranged in another way for this model."""

    @property
    def wide(self) -> bool:
        return self.scope.dtype == "float64"

    def taps(self) -> Taps:
        return self.programs.taps(self.engine, settings=self.scope.settings)

    def inputs(self, batch: Any) -> Any:
        """A batch as tensors, arranged as the model takes it."""
        made = self.model.arranged(batch)
        self.has_moved = self.has_moved or made is not batch
        return self.side.tensors(made, self.scope.dtype)

    def called(self, arrays: Mapping[str, Any], inputs: Any, taps: Taps) -> tuple[Any, Mapping[str, Any]]:
        """What the model makes of the inputs, and its arrays after that."""
        outputs, after = self.model.call("", *arguments_of(inputs), arrays, self.scope, taps)
        return outputs, {**arrays, **after}

    def of_training(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {path: arrays[path] for path in arrays if path in self.trained}

    def channels(self, module: ModuleInfo) -> Channels:
        # The whole is given what its user would give it.
        return self.model.channels(module) if module.path or self.has_moved else Channels()

    def draw(self, masks: Masks) -> Draw:
        """What draws masks: of images with the channels first, as the other frameworks have them."""

        def drawn(shape: tuple[int, ...], rate: float) -> Array:
            if len(shape) < 4 or not self.model.has_images_last:
                return masks.draw(shape, rate)
            return np.moveaxis(masks.draw((shape[0], shape[-1], *shape[1:-1]), rate), 1, -1)

        return drawn


class _Run:
    """All steps of one run, recorded."""

    def __init__(self, running: Running) -> None:
        self.running, self.side, self.scope = running, running.side, running.scope
        self.engine = running.engine
        self.recorder = Recorder(spool=self.scope.spool)
        backward = self.side.loss is not None
        self.step = self.engine.prepared(self._step, running.taps, backward=backward, wide=running.wide)

    def recorded(self, batches: Sequence[Batch]) -> Recording:
        running, model = self.running, self.running.model
        values: dict[str, Any] = dict(running.arrays)
        updates = None
        if self.side.optimizer is not None:
            updates = running.programs.optimizer(self.side.optimizer(model.to_train), running)
        masks, modules = Masks(), {}
        for number, (inputs, targets) in enumerate(each("progress.steps", batches)):
            put = Put(self.recorder, self.scope, number, self.engine.to_array)
            for role, leaf in flatten(inputs, "input"):
                if isinstance(leaf, np.ndarray):
                    put("data", "", cast_floating(leaf, self.scope.dtype), role, 0)
            values |= self._instead(number, values)
            rest = {
                "arrays": values,
                "inputs": running.inputs(inputs),
                "targets": self.side.tensors(targets, self.scope.dtype),
                **self._fed(number),
            }
            computed = self.step(running.of_training(values), rest, running.draw(masks))
            self._put_values(put, computed)
            values, modules = dict(computed.result["arrays"]), computed.taps.modules
            if updates is not None:
                values |= self._update(put, updates, values, computed.gradients)
            for leaf in model.leaves:
                if leaf.recorded:
                    put(leaf.phase, leaf.path, values[leaf.path])
            masks.next_step()
        self._describe(updates, modules)
        return self.recorder.close()

    def _describe(self, updates: Optimizer | None, modules: Mapping[str, Any]) -> None:
        model = self.running.model
        if self.running.has_moved:
            self.recorder.note(message("note.capture.channels_moved"))
        made = current_provenance(
            framework=model.package,
            framework_version=str(getattr(sys.modules.get(model.package), "__version__", "")),
            device="cpu",
            dtype=self.scope.dtype or model.dtype,
            extra={**model.about, **({} if updates is None else updates.described())},
        )
        self.recorder.describe(made, model.built(modules).infos())

    def _instead(self, number: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters that stand in for its own when this step begins."""
        given = {} if self.scope.stand_ins is None else self.scope.stand_ins.parameters.get(number, {})
        return {path: self.engine.tensor(one, values[path].dtype) for path, one in given.items() if path in values}

    def _fed(self, number: int) -> dict[str, dict[Place, Array]]:
        """What stands in for what modules give, and for its gradients."""
        fed = self.scope.stand_ins
        found = {"outputs": {} if fed is None else fed.outputs, "gradients": {} if fed is None else fed.gradients}
        return {
            kind: {(key.path, key.call or 0, key.role): one for key, one in some.items() if key.step == number}
            for kind, some in found.items()
        }

    def _step(self, trained: Leaves, rest: Any, taps: Taps) -> tuple[Any, Any]:
        taps.outputs, taps.gradients = rest["outputs"], rest["gradients"]
        outputs, after = self.running.called({**rest["arrays"], **trained}, rest["inputs"], taps)
        if self.side.loss is None:
            return None, {"arrays": after}
        value = self.engine.tensor(self.side.loss_of(outputs, rest["targets"]))
        check_number(value, self.engine.name)
        # Of one number: only its shape changes.
        value = self.engine.sum(value)
        return value, {"loss": value, "arrays": after}

    def _put_values(self, put: Put, computed: Computed) -> None:
        """What the modules gave, the loss, and the gradients of both."""
        types = computed.taps.types
        put.layers("forward", computed.values.items(), types)
        if "loss" not in computed.result:
            return
        put("loss", "loss", computed.result["loss"])
        put.layers("backward", computed.back.items(), types)
        own = {} if not self.scope.record_given else self.scope.gradients.get(put.step, {})
        for path, one in computed.gradients.items():
            put("gradient", path, own.get(path, one), "raw")

    def _update(self, put: Put, updates: Optimizer, values: Mapping[str, Any], gradients: Leaves) -> dict[str, Any]:
        before = self.running.of_training(values)
        given = self.scope.gradients.get(put.step, {})
        own = {path: self.engine.tensor(one, before[path].dtype) for path, one in given.items() if path in before}
        starts = arrays(self.engine, before)
        if updates.rate is not None:
            put("lr", OPTIMIZER, np.asarray(updates.rate), "group0")
        after = updates.step(values, {**gradients, **own})
        for path, start in starts.items():
            put("update", path, self.engine.to_array(after[path]) - start)
        for path, role, one, facts in updates.kept():
            put("optimizer", path, one, role, meta=facts)
        return after


# ---- one module alone -----------------------------------------------------------------------------------------------


def _first_calls(running: Running, inputs: Any) -> Iterator[Call]:
    """The first call of every module, as all frameworks would write it: with channels before the space."""
    engine = running.engine

    def function(leaves: Leaves, rest: Any, taps: Taps) -> tuple[Any, Any]:
        running.called(rest[0], rest[1], taps)
        return None, ()

    run = engine.prepared(function, running.taps, backward=False)
    _, _, values, _, taps = run({}, (running.arrays, inputs), running.draw(Masks()))
    known = {one.path: one for one in running.model.built(taps.modules).infos()}
    for path, (args, kwargs, output) in taps.arguments.items():
        # The whole is shown as it was called.
        own = running.channels(known[path]) if path and path in known else Channels()

        def array(role: str, leaf: Any, path: str = path, own: Channels = own) -> Any:
            if not engine.is_tensor(leaf):
                return leaf
            place = path, 0, role
            found = values.get(taps.same.get(place, place))
            return leaf if found is None else own.outward(engine.to_array(found))

        given = mapped(args, array, "input"), mapped(kwargs, array, "input")
        roles = [role for role, _ in engine.tensors_in(output, "output")]
        # What is inside of a branch has no values outside of it.
        if is_portable(given) and all((path, 0, role) in values for role in roles):
            shown = {role: values[path, 0, role] for role in roles}
            shapes = {role: own.first(tuple(one.shape)) for role, one in shown.items() if engine.is_floating(one)}
            yield Call(path, *given, shapes)


class Alone:
    """One module alone, forward and backward."""

    def __init__(self, running: Running, path: str, call: Call) -> None:
        self.running, self.path = running, path
        engine = self.engine = running.engine
        info = next((one for one in running.model.infos() if one.path == path), None)
        if info is None:
            raise CaptureError("the model has no such module")
        self.info = info
        given = call.args, dict(call.kwargs)
        if path:
            channels = running.channels(info)
            self._given = mapped(given, lambda _, leaf: as_tensor(engine, channels.inward(leaf), running.scope.dtype))
        else:
            self._given = running.inputs(call.args), running.inputs(dict(call.kwargs))
        self._channels = running.channels(info)
        self._front = f"{path}." if path else ""
        self.leaves = {
            f"w:{name}": one for name, one in running.of_training(running.arrays).items() if self._is_own(name)
        }
        for nest in self._given:
            for role, leaf in engine.tensors_in(nest, "input"):
                if engine.is_floating(leaf):
                    self.leaves[f"x:{role}"] = leaf
        self._roles: list[str] = []

    def _is_own(self, name: str) -> bool:
        return name.startswith(self._front)

    @cached_property
    def draw(self) -> Draw:
        return self.running.draw(Masks())

    def outputs(self, leaves: Leaves, taps: Taps) -> tuple[dict[str, Any], Any]:
        """By role, and the arrays that have changed."""
        weights = {name[2:]: one for name, one in leaves.items() if name.startswith("w:")}
        inner = {name[2:]: one for name, one in leaves.items() if name.startswith("x:")}
        args, kwargs = (filled(nest, inner, "input") for nest in self._given)
        arrays = {**self.running.arrays, **weights}
        output, after = self.running.model.call(self.path, args, kwargs, arrays, self.running.scope, taps)
        found = dict(self.engine.tensors_in(output, "output"))
        self._roles = list(found)
        return found, after

    def weights(self, cotangent: Cotangent) -> dict[str, Any]:
        """What floating outputs are weighted with for the backward pass, by role."""
        taps = self.running.taps()
        taps.masks = self.running.draw(Masks())
        shapes = self.engine.shapes(lambda leaves: self.outputs(leaves, taps)[0], self.leaves)
        given = {
            role: (one, self._channels.cotangent(cotangent, role, tuple(one.shape)))
            for role, one in shapes.items()
            if self.engine.is_floating(one)
        }
        return {
            role: self.engine.tensor(weight, one.dtype) for role, (one, weight) in given.items() if weight is not None
        }

    def evaluated(self, cotangent: Cotangent) -> Evaluated:
        engine, weights = self.engine, self.weights(cotangent)

        def total(leaves: Leaves, weights: Any, taps: Taps) -> tuple[Any, Any]:
            outputs, after = self.outputs(leaves, taps)
            return sum(engine.sum(outputs[role] * one) for role, one in weights.items()), (outputs, after)

        run = engine.prepared(total, self.running.taps, backward=bool(weights), wide=self.running.wide)
        (outputs, after), gradients, *_ = run(self.leaves, weights, self.draw)
        return Evaluated(
            {role: engine.to_array(outputs[role]) for role in self._roles},
            {name[2:]: engine.to_array(one) for name, one in gradients.items() if name.startswith("x:")},
            {
                name[2:].removeprefix(self._front): engine.to_array(one)
                for name, one in gradients.items()
                if name.startswith("w:")
            },
            {
                leaf.path.removeprefix(self._front): engine.to_array(after[leaf.path])
                for leaf in self.running.model.leaves
                if leaf.phase == "buffer" and leaf.recorded and leaf.path in after and self._is_own(leaf.path)
                if engine.is_floating(after[leaf.path])
            },
            self.info.type,
        )
