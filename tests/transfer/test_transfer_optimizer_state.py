"""Optimizer state: after a transfer the other framework's optimizer goes on where the first one stopped."""

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn as pn
from torch import nn as tn

from reprod_log.errors import TransferError, UsageError
from reprod_log.pairing.survey import survey
from reprod_log.transfer import transfer_optimizer_state, transfer_weights

T, P = torch.optim, paddle.optimizer
RATE = 0.02


class Small(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        # No bias: the gradient of a key's bias is rounding noise, which Adam makes into whole steps.
        self.attn = tn.MultiheadAttention(8, 2, batch_first=True, bias=False)
        self.fc = tn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.fc(self.attn(x, x, x)[0]))


class SmallPaddle(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.attn = pn.MultiHeadAttention(8, 2, bias_attr=False)
        self.fc = pn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return pn.functional.tanh(self.fc(self.attn(x)))


Maker = Callable[[Any], Any]
CASES: dict[str, tuple[Maker, Maker]] = {
    "SGD": (lambda p: T.SGD(p, RATE), lambda p: P.SGD(RATE, parameters=p)),
    "Momentum": (lambda p: T.SGD(p, RATE, momentum=0.9), lambda p: P.Momentum(RATE, 0.9, parameters=p)),
    "Adam": (lambda p: T.Adam(p, RATE), lambda p: P.Adam(RATE, parameters=p)),
    "Adam amsgrad": (
        lambda p: T.Adam(p, RATE, amsgrad=True),
        lambda p: P.Adam(RATE, parameters=p, amsgrad=True),
    ),
    "AdamW": (
        lambda p: T.AdamW(p, RATE, betas=(0.8, 0.95)),
        lambda p: P.AdamW(RATE, beta1=0.8, beta2=0.95, parameters=p),
    ),
    "Adamax": (lambda p: T.Adamax(p, RATE), lambda p: P.Adamax(RATE, parameters=p)),
    "Adagrad": (lambda p: T.Adagrad(p, RATE), lambda p: P.Adagrad(RATE, epsilon=1e-10, parameters=p)),
    "RMSprop": (
        lambda p: T.RMSprop(p, RATE, momentum=0.9, centered=True),
        lambda p: P.RMSProp(RATE, rho=0.99, epsilon=1e-16, momentum=0.9, centered=True, parameters=p),
    ),
    "Rprop": (lambda p: T.Rprop(p, RATE), lambda p: P.Rprop(RATE, (1e-6, 50), p)),
    "Adadelta": (lambda p: T.Adadelta(p, 1.0), lambda p: P.Adadelta(1.0, rho=0.9, parameters=p)),
}


def step_torch(model: Any, optimizer: Any, number: int) -> None:
    x = np.random.default_rng(number).standard_normal((2, 5, 8)).astype(np.float32)
    optimizer.zero_grad()
    (model(torch.from_numpy(x)) * 3).square().mean().backward()
    optimizer.step()


def step_paddle(model: Any, optimizer: Any, number: int) -> None:
    x = np.random.default_rng(number).standard_normal((2, 5, 8)).astype(np.float32)
    optimizer.clear_grad()
    (model(paddle.to_tensor(x)) * 3).square().mean().backward()
    optimizer.step()


def values(model: Any) -> dict[str, np.ndarray]:
    found = survey(model)
    return {name: found.read(name) for unit in found.units for name in unit.tensors}


@pytest.mark.parametrize("direction", ["torch to paddle", "paddle to torch"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stepped_before", [False, True])
def test_next_step_agrees_after_state_was_moved(name: str, direction: str, stepped_before: bool) -> None:
    torch.manual_seed(0)
    paddle.seed(0)
    in_torch, in_paddle = Small(), SmallPaddle()
    make_torch, make_paddle = CASES[name]
    sides = [(in_torch, make_torch(in_torch.parameters()), step_torch)]
    sides.append((in_paddle, make_paddle(in_paddle.parameters()), step_paddle))
    if direction == "paddle to torch":
        sides.reverse()
    (source, source_optimizer, step_source), (target, target_optimizer, step_target) = sides
    for number in range(3):
        step_source(source, source_optimizer, number)
    if stepped_before:
        step_target(target, target_optimizer, 100)

    report = transfer_weights(source, target)
    moved = transfer_optimizer_state(source_optimizer, target_optimizer, source, target, report=report)
    assert bool(moved.rows) == (name != "SGD")
    for number in range(3, 5):
        step_source(source, source_optimizer, number)
        step_target(target, target_optimizer, number)

    # What the source would have become, carried over once more, against what the target became.
    became = values(target)
    before = report.plan
    assert before is not None
    here = values(source)
    for name, expected in before.apply(here.__getitem__).items():
        np.testing.assert_allclose(became[name], expected, rtol=2e-3, atol=2e-4, err_msg=name)


def test_without_the_state_the_next_step_differs() -> None:
    # The test above could not fail otherwise.
    in_torch, in_paddle = Small(), SmallPaddle()
    make_torch, make_paddle = CASES["AdamW"]
    one, other = make_torch(in_torch.parameters()), make_paddle(in_paddle.parameters())
    for number in range(3):
        step_torch(in_torch, one, number)
    transfer_weights(in_torch, in_paddle)
    step_torch(in_torch, one, 3)
    step_paddle(in_paddle, other, 3)
    assert np.abs(in_torch.fc.weight.detach().numpy().T - in_paddle.fc.weight.numpy()).max() > 1e-3


def test_optimizers_of_two_kinds_are_refused() -> None:
    in_torch, in_paddle = Small(), SmallPaddle()
    one, other = T.Adam(in_torch.parameters()), P.AdamW(parameters=in_paddle.parameters())
    with pytest.raises(UsageError, match="source optimizer is Adam, the target optimizer AdamW"):
        transfer_optimizer_state(one, other, in_torch, in_paddle)


def test_momentum_into_an_optimizer_without_any_is_refused() -> None:
    in_torch, in_paddle = Small(), SmallPaddle()
    one, other = T.SGD(in_torch.parameters(), RATE, momentum=0.9), P.SGD(RATE, parameters=in_paddle.parameters())
    step_torch(in_torch, one, 0)
    with pytest.raises(TransferError, match="keeps 'momentum_buffer'.*target's SGD keeps none"):
        transfer_optimizer_state(one, other, in_torch, in_paddle)


def test_parameter_that_only_one_optimizer_updates_is_refused() -> None:
    in_torch, in_paddle = Small(), SmallPaddle()
    one = T.Adam(in_torch.parameters())
    other = P.Adam(parameters=in_paddle.attn.parameters())
    step_torch(in_torch, one, 0)
    with pytest.raises(TransferError, match="'fc.weight'.*only the source optimizer"):
        transfer_optimizer_state(one, other, in_torch, in_paddle)


def test_unknown_optimizer_is_refused() -> None:
    in_torch, in_paddle = Small(), SmallPaddle()
    with pytest.raises(UsageError, match="LBFGS is not an optimizer of torch whose state has a rule"):
        transfer_optimizer_state(
            T.LBFGS(in_torch.parameters()), P.Adam(parameters=in_paddle.parameters()), in_torch, in_paddle
        )
