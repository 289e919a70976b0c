"""Mistakes of the training loop, found by computing the steps again from what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import align_models
from reprod_log.diagnose import Finding

RNG = np.random.default_rng(0)
INPUTS = [{"x": RNG.normal(size=(6, 5)).astype(np.float32)} for _ in range(3)]
TARGETS = [RNG.normal(size=(6, 4)).astype(np.float32) for _ in range(3)]
HALVES = slice(0, 3), slice(3, 6)


class Ours(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(5, 8), torch.nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.second(torch.tanh(self.first(x)))


class Theirs(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = paddle.nn.Linear(5, 8), paddle.nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.second(paddle.tanh(self.first(x)))


def our_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    for half in HALVES:
        ((model(inputs["x"][half]) - targets[half]) ** 2).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.2)
    optimizer.step()
    optimizer.zero_grad()


def their_step(*, cleared: bool = False, order: float = 2.0, times: int = 1) -> Callable[..., None]:
    def step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        for half in HALVES:
            if cleared:
                optimizer.clear_grad()
            ((model(inputs["x"][half]) - targets[half]) ** 2).mean().backward()
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 0.2, norm_type=order)
        for _ in range(times):
            optimizer.step()
        optimizer.clear_grad()

    return step


def causes(
    step: Callable[..., None], *, candidate: type[Theirs] = Theirs, trained: slice = slice(None), **settings: Any
) -> list[Finding]:
    torch.manual_seed(0)
    found = align_models(
        Ours(),
        candidate(),
        INPUTS,
        targets=TARGETS,
        step=(our_step, step),
        optimizer=(
            lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
            lambda model: paddle.optimizer.Momentum(0.1, parameters=model.parameters()[trained], **settings),
        ),
    )
    return [one for one in found.findings if one.kind == "cause"]


def test_correct_loop_has_no_cause() -> None:
    assert not causes(their_step())


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (their_step(cleared=True), "only the last micro-batch counts"),
        (
            their_step(order=1.0),
            "by global norm at 0.2 in the reference, by the sum of absolute values (L1 norm) at 0.2",
        ),
    ],
)
def test_what_is_done_with_gradients_is_named(step: Callable[..., None], words: str) -> None:
    assert [words in str(one.cause) for one in causes(step)] == [True]


@pytest.mark.parametrize(
    ("step", "settings", "words"),
    [
        (their_step(times=2), {}, "stepped more than once"),
        (their_step(), {"momentum": 0.5}, "momentum of the optimizer"),
    ],
)
def test_updates_computed_again_by_the_rule_of_the_reference_prove_the_cause(
    step: Callable[..., None], settings: dict[str, Any], words: str
) -> None:
    found = causes(step, **settings)
    assert [(words in str(one.cause), one.confidence) for one in found] == [(True, "proven")]


def test_parameters_that_the_optimizer_was_not_given_are_named_once() -> None:
    """It does not clear their gradients either."""
    (found,) = causes(their_step(), trained=slice(2))
    assert "does not train second.weight, second.bias" in str(found.cause)


class Cut(Theirs):
    def forward(self, x: Any) -> Any:
        return self.second(paddle.tanh(self.first(x)).detach())


def test_cut_is_named_once_with_its_line() -> None:
    (found,) = causes(their_step(), candidate=Cut)
    assert "no gradient reaches" in str(found.cause)
    assert any("self.second(paddle.tanh(self.first(x)).detach())" in str(one) for one in found.evidence)
