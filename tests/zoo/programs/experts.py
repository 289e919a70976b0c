"""A mixture of experts: two of four by their gates, a balancing loss; AdamW, warm-up, plateau and decay."""

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

STEPS, WIDTH, EXPERTS = 6, 8, 4


class TorchExperts(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = tnn.Linear(5, WIDTH), tnn.LayerNorm(WIDTH)
        self.gate = tnn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = tnn.ModuleList(
            [tnn.Sequential(tnn.Linear(WIDTH, 10), tnn.GELU(), tnn.Linear(10, WIDTH)) for _ in range(EXPERTS)]
        )
        self.head = tnn.Linear(WIDTH, 3)

    def forward(self, x: Any) -> Any:
        x = torch.tanh(self.enter(x))
        y = self.norm(x)
        chances = self.gate(y).softmax(-1)
        best, which = chances.topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        shares = torch.zeros_like(chances).scatter(-1, which, best)
        mixed = torch.stack([expert(y) for expert in self.experts], -1)
        x = x + (mixed * shares[:, None]).sum(-1)
        used = (shares > 0).to(x.dtype).mean(0)
        return self.head(x), EXPERTS * (used * chances.mean(0)).sum()


class PaddleExperts(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = pnn.Linear(5, WIDTH), pnn.LayerNorm(WIDTH)
        self.gate = pnn.Linear(WIDTH, EXPERTS, bias_attr=False)
        self.experts = pnn.LayerList(
            [pnn.Sequential(pnn.Linear(WIDTH, 10), pnn.GELU(), pnn.Linear(10, WIDTH)) for _ in range(EXPERTS)]
        )
        self.head = pnn.Linear(WIDTH, 3)

    def forward(self, x: Any) -> Any:
        x = paddle.tanh(self.enter(x))
        y = self.norm(x)
        chances = PF.softmax(self.gate(y), -1)
        best, which = chances.topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        shares = paddle.put_along_axis(paddle.zeros_like(chances), which, best, -1)
        mixed = paddle.stack([expert(y) for expert in self.experts], -1)
        mixed = mixed * shares.unsqueeze(1)
        x = x + mixed.sum(-1)
        used = (shares > 0).astype(x.dtype).mean(0)
        uneven = (used * chances.mean(0)).sum()
        return self.head(x), EXPERTS * uneven


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.cross_entropy(outputs[0], targets) + 0.2 * outputs[1]


def paddle_loss(outputs: Any, targets: Any) -> Any:
    right = PF.cross_entropy(outputs[0], targets)
    return right + 0.2 * outputs[1]


def plateau(step: int) -> float:
    return min((step + 1) / 2, 1.0) * min(1.0, (6 - step) / 3)


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.AdamW(model.parameters(), 4e-3, betas=(0.8, 0.98), eps=1e-7, weight_decay=0.2)
    return made, torch.optim.lr_scheduler.LambdaLR(made, plateau)


def falling(step: int) -> float:
    rise = min((step + 1) / 2, 1.0)
    return rise * min(1.0, (6 - step) / 3)


def paddle_optimizer(model: Any) -> Any:
    rates = paddle.optimizer.lr.LambdaDecay(4e-3, falling)
    made = paddle.optimizer.AdamW(
        rates,
        beta1=0.8,
        beta2=0.98,
        epsilon=1e-7,
        parameters=model.parameters(),
        weight_decay=0.2,
    )
    return made, rates


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchExperts, PaddleExperts, seed)
    some = arrays(seed)
    inputs = [{"x": some.normal(size=(12, 5)).astype(np.float32)} for _ in range(STEPS)]
    targets = [some.integers(0, 3, 12) for _ in range(STEPS)]
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
