"""Defaults: what is right for a framework without wrappers, compilers, gradient scalers and streams of its own.

A small framework derives its parts from these classes and writes only what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from reprod_log.errors import CaptureError
from reprod_log.frameworks.contract import (
    Call,
    Capability,
    Cotangent,
    Evaluated,
    Framework,
    KeptForm,
    ParameterTreatment,
    Program,
    Switch,
    Trace,
)
from reprod_log.frameworks.hooks import Undo, passing
from reprod_log.frameworks.modules import is_training, plain_settings, set_setting
from reprod_log.frameworks.side import Batch, Scope, Side
from reprod_log.layers.optimizers import Slot
from reprod_log.recording import Array


class DefaultModules:
    """Modules without wrappers, compiled paths or weights kept in another form."""

    def settings(self, module: Any) -> dict[str, Any]:
        return plain_settings(module)

    def set_setting(self, module: Any, name: str, value: Any) -> None:
        set_setting(module, name, value)

    def is_training(self, module: Any) -> bool:
        return is_training(module)

    def wrapped(self, module: Any) -> Any | None:
        return None

    def opaque(self, module: Any) -> str:
        return ""

    def caveat(self, module: Any) -> str:
        return ""

    def kept_weights(self, module: Any) -> dict[str, KeptForm]:
        return {}

    def refresh(self, module: Any) -> None:
        pass  # nothing is derived from what was written

    def make_copyable(self, model: Any) -> None:
        pass  # models can be copied

    def hook_stores(self, module: Any) -> Iterator[dict[Any, Any]]:
        yield from ()

    def quiet(self, model: Any) -> AbstractContextManager[None]:
        return nullcontext()


class DefaultHooks:
    """Events that never happen: no tracing, no gradient scaler, no tensor written in place."""

    def on_any_call(
        self, before: Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None]
    ) -> Undo:
        return passing

    def on_new_optimizer(self, found: Callable[[Any], None]) -> Undo:
        return passing

    def on_scaling(
        self,
        scaled: Callable[[Any, Any], None],
        unscaled: Callable[[Any, float], None],
        skipped: Callable[[Any], None],
    ) -> Undo:
        return passing

    def is_tracing(self) -> bool:
        return False

    def in_place_version(self, tensor: Any) -> int:
        return 0


class DefaultOptimizers:
    """Optimizers with one rate for all parameters and no decay, that keep no state."""

    def treatments(self, optimizer: Any) -> list[ParameterTreatment]:
        return [ParameterTreatment(one, self.rates(optimizer)[0]) for one in self.parameters_of(optimizer)]

    def parameters_of(self, optimizer: Any) -> list[Any]:
        raise NotImplementedError

    def rates(self, optimizer: Any) -> list[float]:
        raise NotImplementedError

    def recorded_state(self, optimizer: Any, parameter: Any) -> list[tuple[str, Any, dict[str, Any]]]:
        return []

    def is_kept(self, optimizer: Any, parameter: Any, slot: Slot) -> bool:
        return False

    def read_slots(self, optimizer: Any, parameter: Any) -> dict[str, Array]:
        return {}

    def write_slots(self, optimizer: Any, parameter: Any, slots: Mapping[str, Array]) -> None:
        pass  # nothing is kept

    def constants(self, optimizer: Any, parameter: Any) -> dict[str, float]:
        return {"lr": self.rates(optimizer)[0], "beta1": 0.0, "beta2": 0.0}

    def step(self, optimizer: Any) -> None:
        optimizer.step()

    def convert_optimizer(self, optimizer: Any, dtype: str) -> None:
        pass  # nothing is kept that has a dtype


class DefaultProcess:
    """A framework without random numbers, threads or switches of its own."""

    def version(self) -> str:
        return ""

    def threads(self) -> int | None:
        return None

    def seeds(self) -> dict[str, int]:
        return {}

    def seed(self, number: int) -> None:
        pass  # nothing random

    def random_state(self) -> Any:
        return None

    def set_random_state(self, state: Any) -> None:
        pass  # nothing random

    def precision(self, dtype: str) -> AbstractContextManager[None]:
        return nullcontext()

    def uncompiled(self) -> AbstractContextManager[None]:
        return nullcontext()

    def switches(self) -> list[Switch]:
        return []


class DefaultPrograms:
    """Programs that can only be run as a whole, forward: graphs without gradients."""

    can: frozenset[Capability] = frozenset()

    def calls(self, side: Side, batch: Batch) -> list[Call]:
        raise CaptureError(f"layers of {side.framework.name} cannot be run alone")

    def call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Evaluated:
        raise CaptureError(f"layers of {side.framework.name} cannot be run alone")

    def evaluate(
        self, framework: Framework, function: Callable[..., Any], arguments: Sequence[Any], dtype: str | None
    ) -> Evaluated:
        raise CaptureError(f"functions of {framework.name} have no gradients")

    def operators_of_call(self, side: Side, path: str, call: Call, scope: Scope, cotangent: Cotangent) -> Trace:
        raise CaptureError(f"operators of {side.framework.name} cannot be recorded one by one")

    def operators_of_loss(self, side: Side, batch: Batch, scope: Scope) -> Trace:
        raise CaptureError(f"operators of {side.framework.name} cannot be recorded one by one")

    def program(self, side: Side, batch: Batch, scope: Scope) -> Program:
        raise CaptureError(f"operators of {side.framework.name} cannot be recorded one by one")
