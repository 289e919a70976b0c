"""Keras optimizers: updates of values beside the model, what they keep, and their settings in shared words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from reprod_log.errors import UsageError
from reprod_log.frameworks.keras.models import KerasModel, to_array
from reprod_log.frameworks.programs import OPTIMIZER
from reprod_log.frameworks.trees import Optimizer

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


class KerasOptimizer(Optimizer):
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
        self._last = self.rate
        """The rate of the last step."""

    @property
    def rate(self) -> float:  # type: ignore[override]
        # It is kept as a float32, which stands for the shortest number that is nearest to it.
        return float(str(to_array(self._optimizer.learning_rate)))

    def step(self, values: Mapping[str, Any], gradients: Mapping[str, Any]) -> dict[str, Any]:
        self._last = self.rate
        for path, one in self.variables.items():
            one.assign(values[path])
        self._optimizer.apply([gradients[path] for path in self.variables], list(self.variables.values()))
        return {path: keras.ops.convert_to_tensor(to_array(one)) for path, one in self.variables.items()}

    def kept(self) -> Iterator[tuple[str, str, Any, Mapping[str, Any]]]:
        facts = {"optimizer_step": int(to_array(self._optimizer.iterations))}
        for path, role, tensor in slots_of(self._optimizer, self.variables, self._last):
            yield path, role, tensor, facts

    def described(self) -> dict[str, Any]:
        group = {**_settings(self._optimizer), "lr": self.rate}
        return {"optimizers": {OPTIMIZER: {**described(self._optimizer, list(self.variables)), "groups": [group]}}}


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


def slots_of(optimizer: Any, variables: Mapping[str, Any], rate: Any) -> Iterator[tuple[str, str, Any]]:
    """What an optimizer keeps for each parameter: path, canonical name, tensor; `rate` is that of the last step."""
    order = {id(one): place for place, one in enumerate(optimizer._trainable_variables)}
    kind = next((one.__name__ for one in type(optimizer).__mro__ if one.__name__ in _SLOTS), "")
    for attribute, role in _SLOTS.get(kind, {}).items():
        has_rate = role == "momentum_buffer" and kind in _RATES
        if has_rate and (not optimizer.momentum or (isinstance(rate, float) and not rate)):
            continue
        kept = getattr(optimizer, attribute, None) or []
        for path, one in variables.items():
            if order[id(one)] < len(kept):
                tensor = kept[order[id(one)]].value
                yield path, role, tensor / keras.ops.cast(_RATES[kind] * rate, tensor.dtype) if has_rate else tensor
