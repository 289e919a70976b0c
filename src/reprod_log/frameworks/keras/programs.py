"""Keras models as programs: a step is a function of the variables' values, compiled where the backend compiles."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import keras
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
    Programs,
    TensorFacts,
)
from reprod_log.frameworks.keras.backends import backend
from reprod_log.frameworks.keras.models import (
    Activation,
    KerasModel,
    facts_of,
    in_precision,
    is_model,
    model_of,
    refuse_randomness,
    settings_of,
    to_array,
    with_settings,
)
from reprod_log.frameworks.keras.optimizers import Updates
from reprod_log.frameworks.keras.taps import Taps, ended_by, is_floating, is_tensor, listening
from reprod_log.frameworks.keras.watching import Watch
from reprod_log.frameworks.module_tree import info_of
from reprod_log.frameworks.nests import filled, flatten, is_portable, mapped
from reprod_log.frameworks.side import Batch, Scope, Side, check_number
from reprod_log.frameworks.tensors import cast_floating
from reprod_log.frameworks.values import Channels, Place, Put, fits, name_of
from reprod_log.layers.rows import data_format_says_last
from reprod_log.messages import message
from reprod_log.progress import each
from reprod_log.recording import Array, Recording, current_provenance
from reprod_log.recording.recorder import Recorder

_OPTIMIZER = "optimizer"
"""What the only optimizer of a run is called."""


class KerasTensors:
    """Its tensors are those of the backend, which owns them."""

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, keras.Variable)

    def view(self, tensor: Any) -> tuple[Array, bool]:
        return to_array(tensor), True

    def tensor(self, array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
        return keras.ops.convert_to_tensor(array, dtype=dtype)

    def facts(self, tensor: Any) -> TensorFacts:
        return TensorFacts(tuple(tensor.shape), keras.backend.standardize_dtype(tensor.dtype), "cpu")


class KerasPrograms(Programs):
    """Layers and models of Keras 3, with the variables that they were built with."""

    can: frozenset[Capability] = frozenset(("gradient", "update", "float64", "isolate", "watch"))
    watched_module = "keras"

    def is_optimizer(self, thing: object) -> bool:
        return isinstance(thing, keras.optimizers.Optimizer)

    def listening(self, listener: Listener) -> AbstractContextManager[None]:
        return Watch(listener).on()

    def settle(self) -> None:
        backend().settle()

    def owns(self, model: object) -> bool:
        return is_model(model)

    def layers(self, model: Any) -> tuple[ModuleFacts, ...]:
        return facts_of(model_of(model))

    def state(self, model: Any) -> Mapping[str, Array]:
        return model_of(model).state()

    def with_state(self, model: Any, arrays: Mapping[str, Array]) -> Any:
        one = model_of(model)
        return replace(one, arrays={**one.arrays, **arrays})

    def run(self, side: Side, batches: Sequence[Batch], scope: Scope) -> Recording:
        with _Program(side, scope).opened() as program:
            return _Run(program).recorded(batches)

    def calls(self, side: Side, batch: Batch) -> list[Call]:
        with _Program(side, Scope()).opened() as program:
            taps = Taps(program.model)
            program.called(program.values(), program.tensors(batch[0]), taps)
        found = []
        for path, (args, kwargs, output) in taps.arguments.items():
            # The other side is given them with the channels first, and so is a layer of Keras that is run alone.
            channels = _channels(program.model, path) if path else Channels()
            given = mapped(mapped((args, kwargs), _array), lambda _, leaf: channels.outward(leaf))  # noqa: B023
            outputs = {
                role: channels.first(tuple(leaf.shape))
                for role, leaf in flatten(output, "output")
                if is_tensor(leaf) and is_floating(leaf)
            }
            if is_portable(given):
                found.append(Call(path, given[0], given[1], outputs))
        return found

    def call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Evaluated:
        with _Program(side, scope).opened() as program:
            return _alone(program, path, call, cotangent)

    def evaluate(
        self, framework: Framework, function: Callable[..., Any], arguments: Sequence[Any], dtype: str | None
    ) -> Evaluated:
        given = mapped(tuple(arguments), lambda _, leaf: _tensor(leaf, dtype), "input")
        floats = {role: leaf for role, leaf in flatten(given, "input") if is_tensor(leaf) and is_floating(leaf)}

        def total(leaves: Mapping[str, Any], zero: Any) -> tuple[Any, Any]:
            terms = dict(flatten(function(*filled(given, leaves, "input"))))
            return sum(keras.ops.sum(one) for one in terms.values()), terms

        with backend().precision(dtype):
            terms, gradients, _ = backend().differentiated(total, floats)
            return Evaluated(_arrays(terms), _arrays(gradients))


def _arrays(tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: to_array(one) for name, one in tensors.items()}


def _array(_: str, leaf: Any) -> Any:
    return to_array(leaf) if is_tensor(leaf) else leaf


def _tensor(leaf: Any, dtype: str | None) -> Any:
    return keras.ops.convert_to_tensor(cast_floating(leaf, dtype)) if isinstance(leaf, np.ndarray) else leaf


class _Program:
    """One side's model as a run of a scope has it."""

    def __init__(self, side: Side, scope: Scope) -> None:
        if isinstance(side.model, Mapping):
            raise UsageError("several models of Keras by name cannot be run together; compare them one by one")
        if side.step is not None:
            raise UsageError("models of Keras are run with loss= and optimizer=, not with a step of one's own")
        self.side, self.scope, self.model = side, scope, model_of(side.model)
        self.options = {**self.model.options, **({"training": False} if scope.evaluation else {})}
        self.moved: list[str] = []
        """Inputs whose channels were moved to the end for this model."""
        refuse_randomness(replace(self.model, options=self.options))

    @contextmanager
    def opened(self) -> Iterator[_Program]:
        """While it lasts, the model has the scope's precision and settings."""
        dtype = self.scope.dtype
        with (
            backend().precision(dtype),
            in_precision(self.model, dtype),
            with_settings(self.model, self.scope.settings),
        ):
            yield self

    def values(self) -> dict[str, Any]:
        arrays = {**self.model.state(), **self.scope.state}
        return {path: _tensor(arrays[path], self.scope.dtype) for path in self.model.variables}

    def tensors(self, batch: Any) -> Any:
        """A batch as tensors of the backend, with channels last where only that fits the model."""
        wanted = [tuple(one.shape) for one in getattr(self.model.model, "inputs", None) or ()]

        def tensor(role: str, leaf: Any) -> Any:
            if isinstance(leaf, np.ndarray) and leaf.ndim >= 3 and len(wanted) == 1:
                last = np.moveaxis(leaf, 1, -1)
                if not fits(leaf.shape, wanted[0]) and fits(last.shape, wanted[0]):
                    self.moved.append(role)
                    leaf = last
            return _tensor(leaf, self.scope.dtype)

        return mapped(batch, tensor, "input")

    def called(self, values: Mapping[str, Any], inputs: Any, taps: Taps) -> tuple[Any, dict[str, Any]]:
        """What the model gives with these values, and the values after it."""
        mapping = [(one, values[path]) for path, one in self.model.variables.items()]
        with keras.StatelessScope(mapping) as state, listening(taps):
            outputs = self._outputs(inputs)
        return outputs, {path: state.get_current_value(one) for path, one in self.model.variables.items()}

    def _outputs(self, inputs: Any) -> Any:
        model = self.model.model
        if isinstance(inputs, Mapping):
            known = inspect.signature(model.call).parameters
            return model(**inputs, **self.options) if set(inputs) <= set(known) else model(inputs, **self.options)
        if not isinstance(inputs, (tuple, list)):
            return model(inputs, **self.options)
        several = len(inputs) > 1 and len(getattr(model, "inputs", None) or ()) == len(inputs)
        return model(list(inputs), **self.options) if several else model(*inputs, **self.options)


class _Run:
    """All steps of one run, recorded."""

    def __init__(self, program: _Program) -> None:
        self.program, self.side, self.scope = program, program.side, program.scope
        self.recorder = Recorder(spool=self.scope.spool)
        self.places: list[Place] = []
        """What the taps give, in the order of execution; known after a call, like the types of the layers."""
        self.types: Mapping[str, str] = {}
        self.structure: Any = None
        """Inputs and targets, whose tensors a compiled step is given apart."""
        self.step = backend().compiled(self._forward if self.side.loss is None else self._backward)

    def recorded(self, batches: Sequence[Batch]) -> Recording:
        model, values = self.program.model, self.program.values()
        made = None if self.side.optimizer is None else self.side.optimizer(model.model)
        updates = None if made is None else Updates(made, model, values)
        for number, (inputs, targets) in enumerate(each("progress.steps", batches)):
            put = Put(self.recorder, self.scope, number, to_array)
            for role, leaf in flatten(inputs, "input"):
                if isinstance(leaf, np.ndarray):
                    put("data", "", cast_floating(leaf, self.scope.dtype), role, 0)
            self.structure = self.program.tensors(inputs), self.side.tensors(targets, self.scope.dtype)
            given = {role: leaf for role, leaf in flatten(self.structure) if is_tensor(leaf)}
            result = self.step(values, given)
            self._put_values(put, result)
            values = dict(result["state"])
            if updates is not None:
                values |= self._update(put, updates, values, result["gradients"], number)
            for path in model.variables:
                put("parameter" if path in model.parameters else "buffer", path, values[path])
        self._describe(updates)
        return self.recorder.close()

    def _describe(self, updates: Updates | None) -> None:
        extra: dict[str, Any] = {"backend": keras.backend.backend()}
        if updates is not None:
            extra["optimizers"] = {_OPTIMIZER: updates.described()}
        if self.program.moved:
            self.recorder.note(message("note.capture.channels_moved"))
        made = current_provenance(
            framework="keras",
            framework_version=keras.__version__,
            device="cpu",
            dtype=self.scope.dtype or self.program.model.model.compute_dtype,
            extra=extra,
        )
        self.recorder.describe(made, [info_of(one, "keras") for one in facts_of(self.program.model)])

    def _update(
        self, put: Put, updates: Updates, values: Mapping[str, Any], gradients: Mapping[str, Any], number: int
    ) -> dict[str, Any]:
        own = {path: _tensor(one, self.scope.dtype) for path, one in self.scope.gradients.get(number, {}).items()}
        before, rate = {path: to_array(values[path]) for path in updates.variables}, updates.rate
        put("lr", _OPTIMIZER, np.asarray(rate), "group0")
        after = updates.step(values, {**gradients, **own})
        for path, array in before.items():
            put("update", path, to_array(after[path]) - array)
        for path, role, array, facts in updates.kept(rate):
            put("optimizer", path, array, role, meta=facts)
        return after

    def _put_values(self, put: Put, result: Mapping[str, Any]) -> None:
        """What the layers gave, the loss, and the gradients of both."""
        put.layers("forward", ((place, result["values"][name_of(place)]) for place in self.places), self.types)
        if "loss" not in result:
            return
        put("loss", "loss", result["loss"])
        back = result["backward"]
        there = ((place, back[name_of(place)]) for place in reversed(self.places) if name_of(place) in back)
        put.layers("backward", there, self.types)
        for path, one in result["gradients"].items():
            put("gradient", path, one, "raw")

    def _called(self, values: Mapping[str, Any], given: Any, zero: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        taps = Taps(self.program.model, zero)
        outputs, after = self.program.called(values, given, taps)
        self.places, self.types = list(taps.values), taps.types
        return outputs, {name_of(place): one for place, one in taps.values.items()}, after

    def _forward(self, values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        inputs, _ = filled(self.structure, given)
        _, found, after = self._called(values, inputs, None)
        return {"values": found, "state": after}

    def _backward(self, values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        inputs, targets = filled(self.structure, given)

        def loss(trained: Mapping[str, Any], zero: Any) -> tuple[Any, Any]:
            outputs, found, after = self._called({**values, **trained}, inputs, zero)
            value = self.side.loss_of(outputs, targets)
            check_number(value, "keras")
            value = keras.ops.reshape(value, ())
            return value, {"loss": value, "values": found, "state": after}

        trained = {path: values[path] for path in values if path in self.program.model.trained}
        result, gradients, backward = backend().differentiated(loss, trained)
        return {**result, "gradients": gradients, "backward": backward}


def _alone(program: _Program, path: str, call: Call, cotangent: Cotangent) -> Evaluated:
    """One layer alone, forward and backward."""
    model = program.model
    module = model.modules.get(path)
    if module is None:
        raise CaptureError("the model has no such layer")
    channels = _channels(model, path)
    given = call.args, dict(call.kwargs)
    if path:
        given = mapped(given, lambda _, leaf: _tensor(channels.inward(leaf), program.scope.dtype))
    else:
        given = program.tensors(call.args), program.tensors(dict(call.kwargs))
        channels = channels if program.moved else Channels()
    floats = {
        role: leaf for nest in given for role, leaf in flatten(nest, "input") if is_tensor(leaf) and is_floating(leaf)
    }
    front, values = f"{path}." if path else "", program.values()
    leaves = {f"w:{name}": one for name, one in values.items() if name in model.trained and name.startswith(front)}
    leaves |= {f"x:{role}": one for role, one in floats.items()}

    def run(leaves: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        own = {name[2:]: one for name, one in leaves.items() if name.startswith("w:")}
        inner = {name[2:]: one for name, one in leaves.items() if name.startswith("x:")}
        args, kwargs = (filled(nest, inner, "input") for nest in given)
        mapping = [(one, {**values, **own}[name]) for name, one in model.variables.items()]
        with keras.StatelessScope(mapping) as state:
            output = _called_alone(program, path, args, kwargs)
        after = {name: state.get_current_value(one) for name, one in model.variables.items()}
        return {role: leaf for role, leaf in flatten(output, "output") if is_tensor(leaf)}, after

    weights = {
        role: keras.ops.convert_to_tensor(weight, dtype=one.dtype)
        for role, one in run(leaves)[0].items()
        if is_floating(one) and (weight := channels.cotangent(cotangent, role, tuple(one.shape))) is not None
    }

    def total(leaves: Mapping[str, Any], zero: Any) -> tuple[Any, Any]:
        outputs, after = run(leaves)
        return sum(keras.ops.sum(outputs[role] * one) for role, one in weights.items()), (outputs, after)

    if weights:
        (outputs, after), gradients, _ = backend().compiled(partial(backend().differentiated, total))(leaves)
    else:
        (outputs, after), gradients = backend().compiled(run)(leaves), {}
    return Evaluated(
        _arrays(outputs),
        {name[2:]: to_array(one) for name, one in gradients.items() if name.startswith("x:")},
        {name[2:].removeprefix(front): to_array(one) for name, one in gradients.items() if name.startswith("w:")},
        {
            name.removeprefix(front): to_array(one)
            for name, one in after.items()
            if name.startswith(front) and name not in model.parameters and is_floating(one)
        },
        module.function.__name__ if isinstance(module, Activation) else type(module).__name__,
    )


def _called_alone(program: _Program, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    module = program.model.modules[path]
    if isinstance(module, Activation):
        return module.function(*args, **kwargs)
    options = program.options if module._call_has_training_arg else {}
    end = program.model.modules.get(f"{path}.activation" if path else "activation")
    # A layer that ends in an activation is one without it here: that is a layer of its own.
    without = ended_by(end, keras.activations.linear) if isinstance(end, Activation) else nullcontext()
    pad = program.model.pad_of(module)
    with without:
        args = args if pad is None else (pad(*args),)
        return module(*args, **{**options, **kwargs})


def _channels(model: KerasModel, path: str) -> Channels:
    arranged = settings_of(model.modules[path], model)
    rank = len(arranged["data_format"]) if data_format_says_last(arranged) else 0
    return Channels(lambda axes: axes == rank > 0)
