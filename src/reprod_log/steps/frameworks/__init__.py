"""frameworks: what the steps ask of a framework beyond watching it; the same names in each file.

ENGINES                                    ways to export a model, the usual one first
pulls(optimizer) -> list[Pull]             how every parameter is treated beyond its gradient
penalty_gradients(value, parameters)       the gradients of a scalar, None where there is none
export(model, inputs, folder, engine)      a function from inputs (arrays) to outputs, run by the exported engine
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from reprod_log.recording import Array


@dataclass(frozen=True)
class Pull:
    """The rate and the decay that one parameter gets, whichever of the framework's ways they were set by."""

    parameter: Any
    lr: float
    l1: float = 0.0
    """Coefficient of sign(w), added to the gradient."""
    l2: float = 0.0
    """Coefficient of w, added to the gradient."""
    decoupled: float = 0.0
    """Coefficient of w, taken off beside the gradient's update (AdamW)."""


class Tools(Protocol):
    """What each file offers."""

    ENGINES: tuple[str, ...]

    def pulls(self, optimizer: Any) -> list[Pull]: ...

    def penalty_gradients(self, value: Any, parameters: Sequence[Any]) -> list[Array | None]: ...

    def export(self, model: Any, inputs: Any, folder: Path, engine: str) -> Callable[[Any], Any]: ...


def tools_of(name: str) -> Tools:
    """The file of the framework of this name, which is loaded already."""
    return cast(Tools, import_module(f"{__name__}.{name}"))
