"""Ways to plant a mistake into a trial, from which the tables of `mistakes/` are made.

Code that runs inside a model or a loss is a function of its own above its table: reports quote its line, and a line
that also held the expected words would give the answer away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zoo.trial import Plant, Trial, change_weight


def layer_at(candidate: Any, path: str) -> Any:
    """The layer of the candidate at a dotted path, through models by name too; the candidate itself for ''."""
    for part in path.split(".") if path else ():
        candidate = candidate[part] if isinstance(candidate, dict) else getattr(candidate, part)
    return candidate


def setting(path: str, **attributes: Any) -> Plant:
    """A layer whose attributes have other values."""

    def plant(trial: Trial) -> None:
        for name, value in attributes.items():
            setattr(layer_at(trial.candidate, path), name, value)

    return plant


def eval_mode(path: str) -> Plant:
    """A layer, or the whole model, left in eval mode."""

    def plant(trial: Trial) -> None:
        layer_at(trial.candidate, path).eval()

    return plant


def layer(path: str, make: Callable[[], Any]) -> Plant:
    """Another layer in the place of one, with the same weights."""

    def plant(trial: Trial) -> None:
        above, _, name = path.rpartition(".")
        other = make()
        other.set_state_dict(layer_at(trial.candidate, path).state_dict())
        setattr(layer_at(trial.candidate, above), name, other)

    return plant


def method(path: str, base: type, **functions: Callable[..., Any]) -> Plant:
    """A layer of class `base` of which some methods are others."""

    def plant(trial: Trial) -> None:
        layer_at(trial.candidate, path).__class__ = type("Broken", (base,), functions)

    return plant


def weight(path: str, change: Callable[[Any], Any]) -> Plant:
    """A parameter with changed values."""

    def plant(trial: Trial) -> None:
        change_weight(layer_at(trial.candidate, path), change)

    return plant


def optimizer(make: Callable[..., Any], **settings: Any) -> Plant:
    """The optimizer that `make(model, **settings)` gives."""
    return lambda trial: trial.with_candidate_optimizer(lambda model: make(model, **settings))


def loss(function: Callable[..., Any]) -> Plant:
    return lambda trial: trial.with_candidate_loss(function)


def step(function: Callable[..., Any]) -> Plant:
    """Another training step of one model."""
    return lambda trial: trial.with_candidate_step(function)
