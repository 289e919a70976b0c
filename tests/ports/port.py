"""Port: one torch model, its paddle formulations, and the hand-written converters that prove them the same function.

A reference is written in torch. Each formulation is a paddle model that computes the same with other layers, names,
nesting or order, and a converter: the reference's state (by parameter name, as arrays) → the formulation's state. The
converter is the ground truth; `selfcheck.py` proves with it, in float64, that the two are the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
import torch

State = dict[str, np.ndarray]
"""Parameters and persistent buffers by name."""


@dataclass(frozen=True)
class Floats:
    """An array of normal numbers."""

    shape: tuple[int, ...]
    scale: float = 1.0

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return (self.scale * generator.normal(size=self.shape)).astype(np.float32)


@dataclass(frozen=True)
class Chances:
    """An array of numbers between 0 and 1."""

    shape: tuple[int, ...]

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return generator.uniform(size=self.shape).astype(np.float32)


@dataclass(frozen=True)
class Ints:
    """An array of whole numbers from `low` up to `high` (not included)."""

    high: int
    shape: tuple[int, ...]
    low: int = 0

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return generator.integers(self.low, self.high, self.shape)


@dataclass(frozen=True)
class Bits:
    """An array of 0 and 1 as floating numbers."""

    shape: tuple[int, ...]

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        return generator.integers(0, 2, self.shape).astype(np.float32)


def floats(*shape: int, scale: float = 1.0) -> Floats:
    return Floats(shape, scale)


def chances(*shape: int) -> Chances:
    return Chances(shape)


def ints(high: int, *shape: int, low: int = 0) -> Ints:
    return Ints(high, shape, low)


def bits(*shape: int) -> Bits:
    return Bits(shape)


@dataclass(frozen=True)
class Formulation:
    """The port in other words: how the paddle model is made and how it gets the reference's weights."""

    name: str
    make: Callable[[], Any]
    convert: Callable[[State], State]
    loss: Callable[..., Any] | None = None
    """Instead of the port's loss on the paddle side."""
    optimizer: Callable[..., Any] | None = None
    step: Callable[..., Any] | None = None
    unused: tuple[str, ...] = ()
    """Beginnings of names that the converter leaves as they are, because nothing uses them."""


@dataclass(frozen=True)
class Port:
    """One function: its torch reference, its formulations, and how it is run."""

    name: str
    reference: Callable[[], Any]
    formulations: tuple[Formulation, ...]
    inputs: Mapping[str, Any]
    targets: Any = None
    loss: tuple[Any, Any] | None = None
    """(torch's, paddle's); None: only the outputs are compared."""
    optimizer: tuple[Any, Any] | None = None
    step: tuple[Any, Any] | None = None
    steps: int = 1
    mode: str = "train"
    swap: bool = False
    """Whether it is also run with paddle as the reference."""
    tolerance: float = 1e-7
    """Largest relative difference of the self-check; 1e-6 where both sides cast to float32 inside."""
    seeds: tuple[int, ...] = (0, 1, 2)
    slow: bool = False
    """Whether it is left out unless asked for, because one call takes longer than a few seconds."""
    kept: frozenset[str] = field(default_factory=frozenset)
    """Names of the reference's weights that must keep the values they are made with (tables)."""

    def formulation(self, name: str) -> Formulation:
        return next(one for one in self.formulations if one.name == name)


# Losses that most ports use.


def torch_square(outputs: Any, targets: Any) -> Any:
    return ((outputs - targets) ** 2).mean()


def paddle_square(outputs: Any, targets: Any) -> Any:
    return paddle.nn.functional.mse_loss(outputs, targets)


def torch_entropy(outputs: Any, targets: Any) -> Any:
    return torch.nn.functional.cross_entropy(outputs, targets)


def paddle_entropy(outputs: Any, targets: Any) -> Any:
    return paddle.nn.functional.cross_entropy(outputs, targets)


def paddle_entropy_by_hand(outputs: Any, targets: Any) -> Any:
    picked = (outputs * paddle.nn.functional.one_hot(targets, outputs.shape[-1]).astype(outputs.dtype)).sum(-1)
    return (paddle.logsumexp(outputs, axis=-1) - picked).mean()


SQUARE = (torch_square, paddle_square)
ENTROPY = (torch_entropy, paddle_entropy)


# What converters are written with.


def lin(state: State, old: str, new: str) -> State:
    """A linear layer: the matrix is stored transposed by paddle."""
    made = {f"{new}.weight": state[f"{old}.weight"].T}
    if f"{old}.bias" in state:
        made[f"{new}.bias"] = state[f"{old}.bias"]
    return made


def same(state: State, old: str, new: str | None = None) -> State:
    """Everything under a name as it is: convolutions, embeddings, norms (running statistics under paddle's names)."""
    new = old if new is None else new
    other = {"running_mean": "_mean", "running_var": "_variance"}
    made = {}
    for name, array in state.items():
        if name == old or name.startswith(f"{old}."):
            head, _, leaf = f"{new}{name[len(old) :]}".rpartition(".")
            leaf = other.get(leaf, leaf)
            if leaf != "num_batches_tracked":
                made[f"{head}.{leaf}" if head else leaf] = array
    return made


def lins(state: State, names: Mapping[str, str] | str) -> State:
    """Several linear layers, old name to new; or a string of names that stay."""
    pairs = names if isinstance(names, Mapping) else {name: name for name in names.split()}
    return {name: array for old, new in pairs.items() for name, array in lin(state, old, new).items()}


def sames(state: State, names: Mapping[str, str] | str) -> State:
    pairs = names if isinstance(names, Mapping) else {name: name for name in names.split()}
    return {name: array for old, new in pairs.items() for name, array in same(state, old, new).items()}


# Names and order of registration.


def renamed(kind: Any, **names: str) -> Any:
    """The class with its parts registered under other names; its code stays as it is written."""

    def __setattr__(self: Any, name: str, value: Any) -> None:
        kind.__setattr__(self, names.get(name, name), value)

    def __getattr__(self: Any, name: str) -> Any:
        return kind.__getattr__(self, names.get(name, name))

    return type(kind.__name__, (kind,), {"__setattr__": __setattr__, "__getattr__": __getattr__})


def reregistered(model: Any, *first: str) -> Any:
    """The model with its parts registered in another order: those named first, or all of them backwards."""
    for table in ("_modules", "_sub_layers", "_parameters"):
        parts = getattr(model, table, None)
        if parts:
            order = [*first, *(name for name in parts if name not in first)] if first else list(parts)[::-1]
            items = [(name, parts[name]) for name in order if name in parts]
            parts.clear()
            parts.update(items)
    return model
