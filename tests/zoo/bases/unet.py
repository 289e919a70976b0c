"""A small U-Net with group norm, SiLU, a transposed convolution and a skip connection: Adam, mean squared error."""

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

STEPS = 3


class TorchUnet(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = tnn.Conv2d(2, 8, 3, padding=1)
        self.norm1 = tnn.GroupNorm(2, 8)
        self.act = tnn.SiLU()
        self.down = tnn.Conv2d(8, 12, 3, stride=2, padding=1)
        self.norm2 = tnn.GroupNorm(3, 12)
        self.pool = tnn.MaxPool2d(3, stride=1, padding=1)
        self.up = tnn.ConvTranspose2d(12, 8, 4, stride=2, padding=1)
        self.fuse = tnn.Conv2d(16, 8, 3, padding=2, dilation=2)
        self.prelu = tnn.PReLU(8)
        self.last = tnn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = self.act(self.norm1(self.stem(x)))
        y = self.pool(self.act(self.norm2(self.down(skip))))
        y = torch.cat([self.up(y), skip], 1)
        return self.last(self.prelu(self.fuse(y)))


class PaddleUnet(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem = pnn.Conv2D(2, 8, 3, padding=1)
        self.norm1 = pnn.GroupNorm(2, 8)
        self.act = pnn.Silu()
        self.down = pnn.Conv2D(8, 12, 3, stride=2, padding=1)
        self.norm2 = pnn.GroupNorm(3, 12)
        self.pool = pnn.MaxPool2D(3, stride=1, padding=1)
        self.up = pnn.Conv2DTranspose(12, 8, 4, stride=2, padding=1)
        self.fuse = pnn.Conv2D(16, 8, 3, padding=2, dilation=2)
        self.prelu = pnn.PReLU(8)
        self.last = pnn.Conv2D(8, 2, 1)

    def join(self, y: Any, skip: Any) -> Any:
        return paddle.concat([y, skip], 1)

    def forward(self, x: Any) -> Any:
        skip = self.act(self.norm1(self.stem(x)))
        y = self.pool(self.act(self.norm2(self.down(skip))))
        y = self.join(self.up(y), skip)
        return self.last(self.prelu(self.fuse(y)))


def torch_optimizer(model: Any) -> Any:
    return torch.optim.Adam(model.parameters(), lr=2e-3)


def paddle_optimizer(model: Any, **other: Any) -> Any:
    return paddle.optimizer.Adam(**{"learning_rate": 2e-3, "parameters": model.parameters(), **other})


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.mse_loss(outputs, targets)


def paddle_loss(outputs: Any, targets: Any) -> Any:
    return PF.mse_loss(outputs, targets)


def trial(seed: int = 0) -> Trial:
    torch.manual_seed(seed)
    paddle.seed(seed + 100)
    reference, candidate = TorchUnet(), PaddleUnet()
    for module in (reference.norm1, reference.norm2):
        tnn.init.uniform_(module.weight, 0.5, 1.5)
        tnn.init.normal_(module.bias, 0, 0.3)
    transfer_weights(reference, candidate, on_difference="report")
    generator = arrays(seed)
    inputs = [{"x": generator.normal(size=(2, 2, 8, 8)).astype(np.float32)} for _ in range(STEPS)]
    targets = [generator.normal(size=(2, 2, 8, 8)).astype(np.float32) for _ in range(STEPS)]
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
