"""Settings of optimizers that the frameworks spell in different ways."""

import paddle
import pytest
import torch

from reprod_log.frameworks.paddle import FRAMEWORK as PADDLE
from reprod_log.frameworks.torch import FRAMEWORK as TORCH
from reprod_log.layers.optimizers import group_settings

_OURS, _THEIRS = torch.nn.Linear(2, 2), paddle.nn.Linear(2, 2)


def _differing(ours: torch.optim.Optimizer, theirs: paddle.optimizer.Optimizer) -> set[str]:
    (here,), (there,) = group_settings(TORCH.eager.describe(ours)), group_settings(PADDLE.eager.describe(theirs))
    return {name for name in here.keys() & there.keys() if here[name] != pytest.approx(there[name])}


def test_l1_decay_is_no_weight_decay() -> None:
    ours = torch.optim.SGD(_OURS.parameters(), 0.1, weight_decay=0.01)
    for decay, expected in ((0.01, set()), (paddle.regularizer.L1Decay(0.01), {"weight_decay", "l1_decay"})):
        theirs = paddle.optimizer.SGD(0.1, parameters=_THEIRS.parameters(), weight_decay=decay)
        assert _differing(ours, theirs) == expected


def test_start_of_an_accumulator_is_compared() -> None:
    ours = torch.optim.Adagrad(_OURS.parameters(), 0.1, eps=1e-6, initial_accumulator_value=0.1)
    for start, expected in ((0.1, set()), (0.0, {"initial_accumulator_value"})):
        theirs = paddle.optimizer.Adagrad(0.1, parameters=_THEIRS.parameters(), initial_accumulator_value=start)
        assert _differing(ours, theirs) == expected


def test_ascent_is_told_from_descent() -> None:
    ours = torch.optim.SGD(_OURS.parameters(), 0.1, maximize=True)
    assert _differing(ours, paddle.optimizer.SGD(0.1, parameters=_THEIRS.parameters())) == {"maximize"}
