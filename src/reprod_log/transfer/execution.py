"""Runs of whole models and single layers on arrays, leaving the models as they were."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprod_log.capture.eager import LayerCall, call_on_arrays, each_call, stand_ins, undisturbed
from reprod_log.capture.earshot import suppress_recording
from reprod_log.errors import TransferError, UsageError, first_line
from reprod_log.frameworks.tensors import is_floating, plain_batch
from reprod_log.layers.lookup import layer_kind
from reprod_log.layers.transform import Array
from reprod_log.pairing.survey import Survey
from reprod_log.pairing.unit import BARE, Unit

# What a whole model is called with: arrays by parameter name, a sequence of arrays, or a single one.
Inputs = Mapping[str, Any] | tuple[Any, ...] | list[Any] | Array


@dataclass(frozen=True)
class Trace:
    """The first call of every unit's layer, in the order in which the calls ended."""

    calls: Mapping[str, LayerCall]

    @property
    def ends(self) -> dict[str, int]:
        """The place of every layer's first call in the order of ends, by path."""
        return {path: index for index, path in enumerate(self.calls)}

    def in_order(self, units: tuple[Unit, ...]) -> list[Unit]:
        """The units that were called, in the order of their calls; pieces of one layer keep their own order."""
        position = self.ends
        called = [unit for unit in units if unit.owner in position and unit.kind != BARE]
        return sorted(called, key=lambda unit: position[unit.owner])


def run_model(survey: Survey, inputs: Inputs, arrays: Mapping[str, Array], *, side: str) -> Trace:
    """A run of the whole model in evaluation mode, with some tensors (by name) holding other values for the time."""
    arguments, keywords = _call_form(inputs)
    paths = dict.fromkeys(unit.owner for unit in survey.units)
    modules = {path: survey.modules[path] for path in paths} | {"": survey.model}
    calls: dict[str, LayerCall] = {}
    framework = survey.framework
    by_id = {id(survey.tensors[name]): array for name, array in arrays.items()}

    def record(call: LayerCall) -> None:
        calls.setdefault(call.path, call)

    with (
        suppress_recording(),
        undisturbed(framework, survey.model),
        stand_ins(framework, survey.model, by_id, None),
        each_call(framework, modules, record),
    ):
        try:
            call_on_arrays(framework, survey.model, arguments, keywords)
        except Exception as error:  # a model's forward pass may raise anything at all
            raise TransferError(
                f"The {side} model ({framework.name}) could not be run on the inputs: {first_line(error)}"
            ) from error
    return Trace(calls)


def run_unit(survey: Survey, unit: Unit, arguments: Any, arrays: Mapping[str, Array], dtype: str) -> tuple[Array, ...]:
    """The outputs of a single layer on its own in the given dtype, its tensors holding the given values."""
    module, framework = survey.modules[unit.path], survey.framework
    # Not only the unit's own tensors: a layer of the user's making may hold more, which move as units of their own.
    by_id = {id(survey.tensors[name]): array for name, array in arrays.items()}
    with suppress_recording(), undisturbed(framework, module), stand_ins(framework, module, by_id, dtype):
        return call_on_arrays(framework, module, arguments, {})


def perturbed(survey: Survey) -> dict[str, Array]:
    """The model's values, each a little off in its own way, by name.

    Fresh weights hide mistakes: all norms are ones and zeros, all biases zero, and exchanging two of them changes
    nothing. Perturbed by name, every tensor is different from every other.
    """
    holders: defaultdict[int, list[tuple[str, Unit]]] = defaultdict(list)
    for unit in survey.units:
        for name in unit.tensors:
            holders[id(survey.tensors[name])].append((name, unit))
    result: dict[str, Array] = {}
    for held in holders.values():
        # Tied weights are one tensor and get one perturbation.
        name, _ = held[0]
        array = survey.read(name)
        units = [unit for _, unit in held]
        trained = name in survey.trained or any(unit.kind != BARE for unit in units)
        if trained and is_floating(array):
            array = _shaken(array, name, units)
        result.update((other, array) for other, _ in held)
    return result


def _shaken(array: Array, name: str, units: list[Unit]) -> Array:
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    random = np.random.default_rng(seed)
    wide = array.astype(np.float64)
    # Factors stay positive, so that a variance stays one.
    shaken = wide * (1.0 + 0.2 * random.random(wide.shape))
    if not any(_only_scaled(unit, name) for unit in units):
        size = float(np.sqrt(np.mean(np.square(wide)))) if wide.size else 0.0
        size = size if 0.0 < size < np.inf else 1.0
        shaken = shaken + 0.1 * size * random.standard_normal(wide.shape)
    return shaken.astype(array.dtype)


def _only_scaled(unit: Unit, name: str) -> bool:
    """Whether nothing may be added to the values: zeros that have a meaning, and variances."""
    row = layer_kind(unit.kind)
    if row is not None and row.scale_only:
        return True
    return any(part.canonical == "running_var" and part.tensor == name for part in unit.parts)


def _call_form(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    inputs = plain_batch(inputs)
    if isinstance(inputs, np.ndarray):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    raise UsageError(
        f"inputs must be an array, a tuple of arrays, or a dict of arrays by their names; got {type(inputs).__name__}"
    )
