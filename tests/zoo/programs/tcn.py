"""A temporal convolution net: causal padding, weight norm by hand, dilations; Adam, cosine with warm restarts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from zoo.trial import Trial, arrays, with_weights

STEPS, WIDTH, LENGTH = 5, 6, 11


class TorchBlock(tnn.Module):
    def __init__(self, given: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.way, self.size = tnn.Parameter(torch.ones(WIDTH, given, 3)), tnn.Parameter(torch.ones(WIDTH, 1, 1))
        self.shift = tnn.Parameter(torch.zeros(WIDTH))
        self.skip = tnn.Conv1d(given, WIDTH, 1)

    def forward(self, x: Any) -> Any:
        kernel = self.size * self.way / self.way.norm(dim=(1, 2), keepdim=True)
        y = TF.conv1d(TF.pad(x, (2 * self.dilation, 0)), kernel, self.shift, dilation=self.dilation)
        return TF.relu(TF.leaky_relu(y, 0.05) + self.skip(x))


class TorchTcn(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = TorchBlock(4, 1), TorchBlock(WIDTH, 2), TorchBlock(WIDTH, 4)
        self.head = tnn.Linear(2 * WIDTH, 3)

    def forward(self, x: Any) -> Any:
        x = self.third(self.second(self.first(x)))
        return self.head(torch.cat([x[:, :, -1], x.amax(-1)], -1))


class PaddleBlock(pnn.Layer):
    def __init__(self, given: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.way = self.create_parameter([WIDTH, given, 3])
        self.size = self.create_parameter([WIDTH, 1, 1])
        self.shift = self.create_parameter([WIDTH])
        self.skip = pnn.Conv1D(given, WIDTH, 1)

    def forward(self, x: Any) -> Any:
        length = (self.way**2).sum([1, 2], keepdim=True).sqrt()
        kernel = self.size * self.way / length
        before = 2 * self.dilation
        y = PF.pad(x, [before, 0], data_format="NCL")
        y = PF.conv1d(y, kernel, self.shift, dilation=self.dilation)
        y = PF.leaky_relu(y, 0.05)
        y = y + self.skip(x)
        return PF.relu(y)


class PaddleTcn(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = PaddleBlock(4, 1)
        self.second = PaddleBlock(WIDTH, 2)
        self.third = PaddleBlock(WIDTH, 4)
        self.head = pnn.Linear(2 * WIDTH, 3)

    def forward(self, x: Any) -> Any:
        x = self.third(self.second(self.first(x)))
        last = x[:, :, -1]
        most = x.max(-1)
        return self.head(paddle.concat([last, most], -1))


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.huber_loss(outputs, targets, delta=0.5) + 0.1 * (outputs[:, 1:] - outputs[:, :-1]).abs().mean()


def paddle_loss(outputs: Any, targets: Any) -> Any:
    far = (outputs - targets).abs()
    near = paddle.where(far <= 0.5, 0.5 * far**2, 0.5 * (far - 0.25))
    rough = (outputs[:, 1:] - outputs[:, :-1]).abs()
    return near.mean() + 0.1 * rough.mean()


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.Adam(model.parameters(), 3e-3, betas=(0.9, 0.99), eps=1e-6)
    return made, torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(made, 1, 2, eta_min=3e-4)


def wave(step: int) -> float:
    start, length = 0, 1
    while step >= start + length:
        start, length = start + length, length * 2
    return 0.1 + 0.9 * (1 + math.cos(math.pi * (step - start) / length)) / 2


def paddle_optimizer(model: Any) -> Any:
    rates = paddle.optimizer.lr.LambdaDecay(3e-3, wave)
    return paddle.optimizer.Adam(rates, 0.9, 0.99, 1e-6, parameters=model.parameters()), rates


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchTcn, PaddleTcn, seed)
    some = arrays(seed)
    inputs = [{"x": some.normal(size=(4, 4, LENGTH)).astype(np.float32)} for _ in range(STEPS)]
    targets = [some.normal(size=(4, 3)).astype(np.float32) for _ in range(STEPS)]
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
