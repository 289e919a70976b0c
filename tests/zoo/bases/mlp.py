"""An MLP of functions only (no activation modules), other names on either side: plain SGD, mean squared error."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from reprod_log.transfer import transfer_weights
from zoo.trial import Trial, arrays

STEPS = 4


class TorchMlp(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = tnn.Linear(12, 20), tnn.Linear(20, 20), tnn.Linear(20, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = TF.relu(self.first(x))
        y = y + torch.sigmoid(self.second(y))
        return self.third(TF.silu(y))


class PaddleMlp(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem = pnn.Linear(12, 20)
        self.body = pnn.Linear(20, 20)
        self.exit = pnn.Linear(20, 4)

    def gate(self, y: Any) -> Any:
        return PF.sigmoid(y)

    def last(self, y: Any) -> Any:
        return PF.silu(y)

    def forward(self, x: Any) -> Any:
        y = PF.relu(self.stem(x))
        y = y + self.gate(self.body(y))
        return self.exit(self.last(y))


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.SGD(model.parameters(), lr=0.5)
    return made, torch.optim.lr_scheduler.CosineAnnealingLR(made, 12)


def paddle_optimizer(model: Any, **other: Any) -> Any:
    schedule = other.pop("schedule", None) or paddle.optimizer.lr.CosineAnnealingDecay(0.5, 12)
    return paddle.optimizer.SGD(schedule, **{"parameters": model.parameters(), **other}), schedule


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.mse_loss(outputs, targets)


def paddle_loss(outputs: Any, targets: Any) -> Any:
    return PF.mse_loss(outputs, targets)


def trial(seed: int = 0) -> Trial:
    torch.manual_seed(seed)
    paddle.seed(seed + 100)
    reference, candidate = TorchMlp(), PaddleMlp()
    generator = arrays(seed)
    inputs = [{"x": generator.normal(size=(6, 12)).astype(np.float32)} for _ in range(STEPS)]
    targets = [generator.normal(size=(6, 4)).astype(np.float32) for _ in range(STEPS)]
    transfer_weights(
        reference, candidate, rename={"first": "stem", "second": "body", "third": "exit"}, on_difference="report"
    )
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
