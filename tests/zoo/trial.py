"""Trial: one torch model, its paddle port and how both are trained; what a mistake is planted into."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import paddle
import torch

from ports.pair import make_generic
from reprod_log.transfer import transfer_weights


@dataclass(frozen=True)
class Trial:
    """What `align_models` is given. Pairs are (reference's, candidate's)."""

    reference: Any
    candidate: Any
    inputs: list[Any]
    targets: list[Any] | None
    loss: tuple[Any, Any] = (None, None)
    optimizer: tuple[Any, Any] = (None, None)
    step: tuple[Any, Any] = (None, None)

    def with_candidate_optimizer(self, make: Callable[[Any], Any]) -> Trial:
        return replace(self, optimizer=(self.optimizer[0], make))

    def with_candidate_loss(self, loss: Callable[..., Any]) -> Trial:
        return replace(self, loss=(self.loss[0], loss))

    def with_candidate_step(self, step: Callable[..., Any]) -> Trial:
        return replace(self, step=(self.step[0], step))


Plant = Callable[[Trial], Trial | None]
"""Breaks the candidate; gives a new trial, or None when it changed the candidate in place."""

Half = Literal["development", "scored"]


def half_of(name: str) -> Half:
    """The last bit of the SHA-256 of a name decides, so that nobody chooses and nothing ever changes sides."""
    return "scored" if hashlib.sha256(name.encode()).digest()[-1] % 2 else "development"


@dataclass(frozen=True)
class Mistake:
    """A planted mistake: how, into what, and what a good answer says about it."""

    name: str
    base: Callable[[int], Trial]
    """Makes a healthy trial for a seed."""
    plant: Plant
    rules: tuple[str, ...]
    """The rules of which one must name the cause; any, where the words are enough."""
    words: tuple[str, ...]
    """What the finding must say, one of them at least (lower case)."""
    place: tuple[str, ...]
    """Part of the first divergent key (one of them): the layer, loss, parameter, buffer or lr where the mistake is."""
    quick: bool = False
    """Whether it is in the short selection that the tests run."""

    @property
    def half(self) -> Half:
        """Whether rules may be tuned on it ("development") or are only measured on it ("scored").

        The first 100 mistakes had all been looked at before they were split.
        """
        return half_of(self.name)

    def planted(self, seed: int) -> Trial:
        """A trial of this seed with the mistake in it."""
        trial = self.base(seed)
        return self.plant(trial) or trial


@dataclass(frozen=True)
class Healthy:
    """A correct port: it must pass and no cause may be named."""

    name: str
    make: Callable[[int], Trial]
    seeds: tuple[int, ...] = tuple(range(3))
    quick: bool = False


def arrays(seed: int) -> np.random.Generator:
    return np.random.default_rng(1000 + seed)


def with_weights(ours: Callable[[], Any], theirs: Callable[[], Any], seed: int) -> tuple[Any, Any]:
    """Both models with the same weights, none of which is zero or one: those would hide mistakes."""
    torch.manual_seed(seed)
    paddle.seed(seed + 100)
    reference, candidate = ours(), theirs()
    make_generic(reference, seed)
    transfer_weights(reference, candidate, on_difference="report")
    return reference, candidate


def change_weight(parameter: Any, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Give a paddle parameter other values."""
    parameter.set_value(np.ascontiguousarray(change(parameter.numpy())).astype(np.float32))
