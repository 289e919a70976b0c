"""A residual network with batch norm in train mode and He's start: activations large enough for kinks to be crossed."""

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
from zoo.bases.cnn import unbiased
from zoo.trial import Trial, arrays

STEPS, WIDTHS = 5, ((8, 8, 1), (8, 16, 2), (16, 16, 1))


class TorchBlock(tnn.Module):
    def __init__(self, taken: int, given: int, stride: int) -> None:
        super().__init__()
        self.conv1 = tnn.Conv2d(taken, given, 3, stride, 1, bias=False)
        self.bn1 = tnn.BatchNorm2d(given)
        self.relu = tnn.ReLU(inplace=True)
        self.conv2 = tnn.Conv2d(given, given, 3, 1, 1, bias=False)
        self.bn2 = tnn.BatchNorm2d(given)
        same = taken == given and stride == 1
        self.short = (
            None if same else tnn.Sequential(tnn.Conv2d(taken, given, 1, stride, bias=False), tnn.BatchNorm2d(given))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.short is None else self.short(x)))


class TorchNet(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = tnn.Conv2d(3, 8, 3, 1, 1)
        self.bn = tnn.BatchNorm2d(8)
        self.relu = tnn.ReLU()
        self.pool = tnn.MaxPool2d(3, 2, 1)
        self.blocks = tnn.Sequential(*[TorchBlock(*sizes) for sizes in WIDTHS])
        self.gap = tnn.AdaptiveAvgPool2d(1)
        self.fc = tnn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu(self.bn(self.stem(x))))
        return self.fc(self.gap(self.blocks(x)).flatten(1))


class PaddleBlock(pnn.Layer):
    def __init__(self, taken: int, given: int, stride: int) -> None:
        super().__init__()
        self.conv1 = pnn.Conv2D(taken, given, 3, stride, 1, bias_attr=False)
        self.bn1 = unbiased(pnn.BatchNorm2D(given))
        self.relu = pnn.ReLU()
        self.conv2 = pnn.Conv2D(given, given, 3, 1, 1, bias_attr=False)
        self.bn2 = unbiased(pnn.BatchNorm2D(given))
        same = taken == given and stride == 1
        self.short = (
            None
            if same
            else pnn.Sequential(pnn.Conv2D(taken, given, 1, stride, bias_attr=False), unbiased(pnn.BatchNorm2D(given)))
        )

    def join(self, y: Any, x: Any) -> Any:
        return y + x

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(self.join(y, x if self.short is None else self.short(x)))


class PaddleNet(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem = pnn.Conv2D(3, 8, 3, 1, 1)
        self.bn = unbiased(pnn.BatchNorm2D(8))
        self.relu = pnn.ReLU()
        self.pool = pnn.MaxPool2D(3, 2, 1)
        self.blocks = pnn.Sequential(*[PaddleBlock(*sizes) for sizes in WIDTHS])
        self.gap = pnn.AdaptiveAvgPool2D(1)
        self.fc = pnn.Linear(16, 10)

    def features(self, x: Any) -> Any:
        return self.gap(self.blocks(x)).flatten(1)

    def forward(self, x: Any) -> Any:
        return self.fc(self.features(self.pool(self.relu(self.bn(self.stem(x))))))


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return made, torch.optim.lr_scheduler.CosineAnnealingLR(made, 10)


def paddle_optimizer(model: Any, **other: Any) -> Any:
    schedule = other.pop("schedule", None) or paddle.optimizer.lr.CosineAnnealingDecay(0.05, 10)
    given = {"momentum": 0.9, "weight_decay": 1e-4, "parameters": model.parameters()}
    return paddle.optimizer.Momentum(schedule, **{**given, **other}), schedule


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.cross_entropy(outputs, targets)


def paddle_loss(outputs: Any, targets: Any) -> Any:
    return PF.cross_entropy(outputs, targets)


def trial(seed: int = 0) -> Trial:
    torch.manual_seed(seed)
    paddle.seed(seed + 100)
    reference, candidate = TorchNet().train(), PaddleNet()
    for module in reference.modules():
        if isinstance(module, tnn.Conv2d):
            tnn.init.kaiming_normal_(module.weight)
        elif isinstance(module, tnn.BatchNorm2d):
            tnn.init.uniform_(module.weight, 0.5, 1.5)
            tnn.init.normal_(module.bias, 0, 0.3)
    candidate.train()
    transfer_weights(reference, candidate, on_difference="report")
    generator = arrays(seed)
    inputs = [{"x": generator.normal(size=(8, 3, 16, 16)).astype(np.float32)} for _ in range(STEPS)]
    targets = [generator.integers(0, 10, 8) for _ in range(STEPS)]
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
