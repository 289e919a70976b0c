"""Keras models as programs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import keras

from reprod_log.frameworks.contract import Capability, Listener, Tensors
from reprod_log.frameworks.keras.backends import engine
from reprod_log.frameworks.keras.calls import KerasTaps, KerasWatch
from reprod_log.frameworks.keras.models import KerasModel, is_model, model_of, to_array
from reprod_log.frameworks.keras.optimizers import KerasOptimizer
from reprod_log.frameworks.programs import Running, TreePrograms
from reprod_log.frameworks.trees import Engine, Optimizer
from reprod_log.recording import Array


class KerasTensors(Tensors):
    """Its tensors are those of the backend, which owns them."""

    def is_tensor(self, value: object) -> bool:
        return isinstance(value, keras.Variable)

    def view(self, tensor: Any) -> tuple[Array, bool]:
        return to_array(tensor), True

    def tensor(self, array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
        return keras.ops.convert_to_tensor(array, dtype=dtype)


class KerasPrograms(TreePrograms):
    """Layers and models of Keras 3, with the variables that they were built with."""

    can: frozenset[Capability] = frozenset(("gradient", "update", "float64", "isolate", "watch"))
    taps = KerasTaps

    @property
    def engine(self) -> Engine:  # type: ignore[override]  # known when Keras has chosen its backend
        return engine()

    def owns(self, model: object) -> bool:
        return is_model(model)

    def model_of(self, model: Any) -> KerasModel:
        return model_of(model)

    def with_state(self, model: Any, arrays: Mapping[str, Array]) -> Any:
        one = model_of(model)
        return replace(one, changed={**one.changed, **arrays})

    def is_optimizer(self, thing: object) -> bool:
        return isinstance(thing, keras.optimizers.Optimizer)

    def optimizer(self, made: Any, running: Running) -> Optimizer:
        assert isinstance(running.model, KerasModel)
        return KerasOptimizer(made, running.model, running.arrays)

    def listening(self, listener: Listener) -> AbstractContextManager[None]:
        return KerasWatch(listener).on()
