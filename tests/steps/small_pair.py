"""A small classifier in torch and in paddle with the same layers and, once carried over, the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

from reprod_log import transfer_weights
from reprod_log.steps.trainer import Trainer

INPUTS = (np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32),)
LABELS = np.array([0, 2, 1, 2])


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(6)
        self.hidden = torch.nn.Linear(6 * 16, 12)
        self.head = torch.nn.Linear(12, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(image)))
        x = torch.nn.functional.max_pool2d(x, 2).flatten(1)
        return self.head(torch.relu(self.hidden(x)))


class PaddleNet(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = paddle.nn.Conv2D(3, 6, 3, padding=1)
        self.norm = paddle.nn.BatchNorm2D(6)
        self.hidden = paddle.nn.Linear(6 * 16, 12)
        self.head = paddle.nn.Linear(12, 3)

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        x = paddle.nn.functional.relu(self.norm(self.conv(image)))
        x = paddle.nn.functional.max_pool2d(x, 2).flatten(1)
        return self.head(paddle.nn.functional.relu(self.hidden(x)))


def pair(*, evaluate: bool = True) -> tuple[TorchNet, PaddleNet]:
    """Both models with torch's weights, in evaluation mode unless asked otherwise."""
    torch.manual_seed(0)
    ours, theirs = TorchNet(), PaddleNet()
    transfer_weights(ours, theirs)
    if evaluate:
        ours.eval()
        theirs.eval()
    return ours, theirs


def torch_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs, labels)


def paddle_loss(outputs: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    return paddle.nn.functional.cross_entropy(outputs, labels)


def torch_trainer(model: Any, *, decay: float = 1e-2, **more: Any) -> Trainer:
    def optimizer(one: Any) -> Any:
        return torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9, weight_decay=decay)

    return Trainer(model, torch_loss, optimizer, **more)


def paddle_trainer(model: Any, *, decay: Any = 1e-2, lr: Any = 0.05, **more: Any) -> Trainer:
    def optimizer(one: Any) -> Any:
        return paddle.optimizer.Momentum(lr, 0.9, parameters=one.parameters(), weight_decay=decay)

    return Trainer(model, paddle_loss, optimizer, **more)
