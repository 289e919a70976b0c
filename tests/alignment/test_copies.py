"""Copies of a model that are never called, such as averages of its weights: filled like it, compared by values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Alignment, align_models

GENERATOR = np.random.default_rng(0)
INPUTS = [GENERATOR.normal(size=(6, 4)).astype("float32") for _ in range(3)]
TARGETS = [GENERATOR.normal(size=(6, 2)).astype("float32") for _ in range(3)]


class Reference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x)))


class Candidate(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.out, self.into = paddle.nn.Linear(5, 2), paddle.nn.Linear(4, 5)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.out(paddle.tanh(self.into(x)))


def torch_step(models: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    torch.nn.functional.mse_loss(models["net"](*inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for mean, weight in zip(models["ema"].parameters(), models["net"].parameters(), strict=True):
            mean.mul_(0.9).add_(weight, alpha=0.1)


def paddle_step(decay: float) -> Callable[..., None]:
    def step(models: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        paddle.nn.functional.mse_loss(models["net"](*inputs), targets).backward()
        optimizer.step()
        optimizer.clear_grad()
        with paddle.no_grad():
            for mean, weight in zip(models["ema"].parameters(), models["net"].parameters(), strict=True):
                mean.set_value(mean * decay + weight * (1 - decay))

    return step


@pytest.fixture(scope="module")
def aligned() -> Callable[[float], Alignment]:
    def found(decay: float) -> Alignment:
        ours = {"net": Reference(), "ema": Reference()}
        ours["ema"].load_state_dict(ours["net"].state_dict())
        return align_models(
            ours,
            {"net": Candidate(), "ema": Candidate()},
            INPUTS,
            targets=TARGETS,
            step=(torch_step, paddle_step(decay)),
            optimizer=(
                lambda models: torch.optim.SGD(models["net"].parameters(), lr=0.1),
                lambda models: paddle.optimizer.SGD(0.1, parameters=models["net"].parameters()),
            ),
        )

    return found


def test_average_of_weights_passes_where_it_is_the_same(aligned: Callable[[float], Alignment]) -> None:
    found = aligned(0.9)
    assert found.passed
    averaged = {one.key.path for one in found.verdict.judgements if one.key.path.startswith("ema.")}
    assert averaged == {"ema.first.weight", "ema.first.bias", "ema.last.weight", "ema.last.bias"}


def test_average_with_another_decay_is_found_and_named(aligned: Callable[[float], Alignment]) -> None:
    found = aligned(0.8)
    assert not found.passed
    assert found.first_divergence is not None
    assert found.first_divergence.key.path.startswith("ema.")
    assert any("0.1 of net" in str(one.cause) and "0.2 of net" in str(one.cause) for one in found.findings)
