"""Keras optimizers: updates of values beside the model, what they keep, and their settings in shared words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from reprod_log.errors import UsageError
from reprod_log.frameworks.keras.models import KerasModel, to_array
from reprod_log.recording import Array

_MOMENTS = {"_momentums": "exp_avg", "_velocities": "exp_avg_sq", "_velocity_hats": "max_exp_avg_sq"}
_SLOTS: Mapping[str, Mapping[str, str]] = {
    "SGD": {"momentums": "momentum_buffer"},
    "Adam": _MOMENTS,
    "AdamW": _MOMENTS,
    "Nadam": _MOMENTS,
    "Adamax": {"_m": "exp_avg", "_u": "exp_inf"},
    "RMSprop": {"_velocities": "square_avg", "_average_gradients": "grad_avg", "_momentums": "momentum_buffer"},
    "Adagrad": {"_accumulators": "sum"},
    "Adadelta": {"_accumulated_grads": "square_avg", "_accumulated_delta_vars": "acc_delta"},
}
"""Lists of what an optimizer keeps for its variables, with the canonical names."""
_RATES = {"SGD": -1.0, "RMSprop": 1.0}
"""Optimizers whose momentum has the learning rate multiplied in, with its sign."""
_WORDS = {"epsilon": "eps", "beta_1": "beta1", "beta_2": "beta2"}


class Updates:
    """An optimizer that a side has made, on variables of its own that stand for the model's."""

    def __init__(self, optimizer: Any, model: KerasModel, values: Mapping[str, Any]) -> None:
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise UsageError(
                f"the optimizer of the Keras side is a {type(optimizer).__name__}: give one of Keras, "
                "optimizer=lambda model: keras.optimizers.Adam(1e-3)"
            )
        if optimizer.built:
            raise UsageError("the optimizer of the Keras side was used before: make a new one in optimizer=")
        self._optimizer = optimizer
        self.variables: dict[str, Any] = {}
        for path in sorted(model.trained, key=list(model.variables).index):
            one = keras.Variable(values[path], dtype=values[path].dtype, name=model.variables[path].name)
            # What is left out of weight decay is known by its path.
            one._path = model.variables[path].path
            self.variables[path] = one
        optimizer.build(list(self.variables.values()))

    @property
    def rate(self) -> float:
        # It is kept as a float32, which stands for the shortest number that is nearest to it.
        return float(str(to_array(self._optimizer.learning_rate)))

    def step(self, values: Mapping[str, Any], gradients: Mapping[str, Any]) -> dict[str, Any]:
        """The values after one update."""
        for path, one in self.variables.items():
            one.assign(values[path])
        self._optimizer.apply([gradients[path] for path in self.variables], list(self.variables.values()))
        return {path: keras.ops.convert_to_tensor(to_array(one)) for path, one in self.variables.items()}

    def kept(self, rate: float) -> Iterator[tuple[str, str, Array, dict[str, Any]]]:
        """What it keeps for each parameter: path, canonical name, values, facts; `rate` is that of the last step."""
        name = _kind(self._optimizer)
        facts = {"optimizer_step": int(to_array(self._optimizer.iterations))}
        for attribute, role in _SLOTS.get(name, {}).items():
            kept = getattr(self._optimizer, attribute, None) or []
            for path, one in zip(self.variables, kept, strict=False):
                array = to_array(one)
                if role == "momentum_buffer" and name in _RATES:
                    if not self._optimizer.momentum or not rate:
                        continue
                    array = array / np.asarray(_RATES[name] * rate, array.dtype)
                yield path, role, array, facts

    def described(self) -> dict[str, Any]:
        return {**described(self._optimizer, list(self.variables)), "groups": [self._group()]}

    def _group(self) -> dict[str, Any]:
        return {**_settings(self._optimizer), "lr": self.rate}


def described(optimizer: Any, paths: list[str]) -> dict[str, Any]:
    """Its settings in shared words, and the paths of its parameters."""
    group = _settings(optimizer)
    name = type(optimizer).__name__
    # Keras takes the decay off the weights in every optimizer.
    name = "AdamW" if name == "Adam" and group.get("weight_decay") else name
    return {"type": name, "groups": [group], "parameters": paths}


def _settings(optimizer: Any) -> dict[str, Any]:
    return {
        _WORDS.get(name, name): value
        # Not its configuration, which asks for the learning rate: that has no value while a step is compiled.
        for name, value in vars(optimizer).items()
        if isinstance(value, (bool, int, float)) and not name.startswith("_") and name != "built"
    }


def _kind(optimizer: Any) -> str:
    return next((one.__name__ for one in type(optimizer).__mro__ if one.__name__ in _SLOTS), "")


def slots_of(optimizer: Any, variables: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """What an optimizer keeps for each parameter as it stands now: path, canonical name, tensor."""
    order = {id(one): place for place, one in enumerate(optimizer._trainable_variables)}
    kind = _kind(optimizer)
    for attribute, role in _SLOTS.get(kind, {}).items():
        kept = getattr(optimizer, attribute, None) or []
        for path, one in variables.items():
            if order[id(one)] >= len(kept):
                continue
            tensor = kept[order[id(one)]].value
            if role == "momentum_buffer" and kind in _RATES:
                if not optimizer.momentum:
                    continue
                tensor = tensor / keras.ops.cast(_RATES[kind] * optimizer.learning_rate, tensor.dtype)
            yield path, role, tensor
