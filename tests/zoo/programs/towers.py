"""Two towers whose embeddings are compared: both directions, a learned scale; Lion by hand on both sides, warm-up."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from zoo.trial import Trial, arrays, with_weights

STEPS, WIDTH, WORDS = 4, 8, 17


class TorchTowers(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image1, self.image2 = tnn.Linear(10, 12), tnn.Linear(12, WIDTH)
        self.words, self.text = tnn.Embedding(WORDS, 12), tnn.Linear(12, WIDTH)
        self.norm = tnn.LayerNorm(12)
        self.scale = tnn.Parameter(torch.tensor(1.3))

    def forward(self, image: Any, ids: Any) -> Any:
        one = TF.normalize(self.image2(TF.elu(self.image1(image))), dim=-1)
        other = TF.normalize(self.text(self.norm(self.words(ids).mean(1))), dim=-1)
        return self.scale.exp() * one @ other.T


class PaddleTowers(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.image1 = pnn.Linear(10, 12)
        self.image2 = pnn.Linear(12, WIDTH)
        self.words = pnn.Embedding(WORDS, 12)
        self.text = pnn.Linear(12, WIDTH)
        self.norm = pnn.LayerNorm(12)
        self.scale = self.create_parameter([])

    def forward(self, image: Any, ids: Any) -> Any:
        one = self.image2(PF.elu(self.image1(image)))
        one = PF.normalize(one, axis=-1)
        mean = self.words(ids).mean(1)
        other = self.text(self.norm(mean))
        other = PF.normalize(other, axis=-1)
        near = one @ other.T
        return self.scale.exp() * near


def torch_loss(outputs: Any, targets: Any) -> Any:
    return 0.5 * (TF.cross_entropy(outputs, targets) + TF.cross_entropy(outputs.T, targets))


def paddle_loss(outputs: Any, targets: Any) -> Any:
    rows = PF.cross_entropy(outputs, targets)
    columns = PF.cross_entropy(outputs.T, targets)
    return 0.5 * (rows + columns)


class TorchLion(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 2e-3})
        self.kept: dict[Any, Any] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                kept = self.kept.setdefault(one, torch.zeros_like(one))
                way = (0.9 * kept + 0.1 * one.grad).sign()
                one.mul_(1 - group["lr"] * 0.5).sub_(group["lr"] * way)
                kept.mul_(0.98).add_(0.02 * one.grad)


class PaddleLion(paddle.optimizer.SGD):
    def __init__(self, schedule: Any, parameters: Any) -> None:
        super().__init__(schedule, parameters=parameters)
        self.kept: dict[str, Any] = {}

    @paddle.no_grad()
    def step(self) -> None:
        rate = self.get_lr()
        for one in (one for one in self._parameter_list if one.grad is not None):
            kept = self.kept.get(one.name, one.grad * 0)
            way = (0.9 * kept + 0.1 * one.grad).sign()
            moved = one * (1 - rate * 0.5) - rate * way
            self.kept[one.name] = 0.98 * kept + 0.02 * one.grad
            one.set_value(moved)


def torch_optimizer(model: Any) -> Any:
    made = TorchLion(model.parameters())
    return made, torch.optim.lr_scheduler.LinearLR(made, 0.25, 1.0, total_iters=3)


def paddle_optimizer(model: Any) -> Any:
    schedule = paddle.optimizer.lr.LinearWarmup(2e-3, 3, 5e-4, 2e-3)
    return PaddleLion(schedule, model.parameters()), schedule


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchTowers, PaddleTowers, seed)
    generator = arrays(seed)
    inputs = [
        {"image": generator.normal(size=(5, 10)).astype(np.float32), "ids": generator.integers(0, WORDS, (5, 4))}
        for _ in range(STEPS)
    ]
    targets = [np.arange(5) for _ in range(STEPS)]
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
