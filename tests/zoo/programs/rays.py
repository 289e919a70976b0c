"""Rays through a field: sines of places, densities, light that is absorbed on its way; Adam, rates that halve."""

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

STEPS, POINTS, WIDTH, WAVES = 4, 6, 16, 3


class TorchField(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = tnn.Linear(3 + 6 * WAVES, WIDTH), tnn.Linear(WIDTH, WIDTH)
        self.third = tnn.Linear(WIDTH + 3 + 6 * WAVES, WIDTH)
        self.density, self.colour = tnn.Linear(WIDTH, 1), tnn.Linear(WIDTH, 3)

    def forward(self, origin: Any, way: Any) -> Any:
        depth = torch.linspace(0.5, 2.0, POINTS, dtype=origin.dtype)
        x = origin[:, None] + depth[:, None] * way[:, None]
        angles = (x[..., None] * 2.0 ** torch.arange(WAVES, dtype=x.dtype)).flatten(-2)
        x = torch.cat([x, angles.sin(), angles.cos()], -1)
        y = TF.relu(self.second(TF.relu(self.first(x))))
        y = TF.relu(self.third(torch.cat([y, x], -1)))
        density = TF.softplus(self.density(y)[..., 0] - 1)
        apart = torch.cat([depth[1:] - depth[:-1], torch.full([1], 1.0, dtype=x.dtype)])
        through = torch.exp(-density * apart)
        before = torch.cat([torch.ones_like(through[:, :1]), through.cumprod(-1)[:, :-1]], -1)
        weights = before * (1 - through)
        light = (weights[..., None] * torch.sigmoid(self.colour(y))).sum(1)
        return light + (1 - weights.sum(-1, keepdim=True)), (weights * depth).sum(-1)


class PaddleField(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pnn.Linear(3 + 6 * WAVES, WIDTH), pnn.Linear(WIDTH, WIDTH)
        self.third = pnn.Linear(WIDTH + 3 + 6 * WAVES, WIDTH)
        self.density, self.colour = pnn.Linear(WIDTH, 1), pnn.Linear(WIDTH, 3)

    def forward(self, origin: Any, way: Any) -> Any:
        depth = paddle.linspace(0.5, 2.0, POINTS).astype(origin.dtype)
        x = origin.unsqueeze(1) + depth.unsqueeze(1) * way.unsqueeze(1)
        powers = 2.0 ** paddle.arange(WAVES).astype(x.dtype)
        angles = (x.unsqueeze(-1) * powers).flatten(-2)
        x = paddle.concat([x, angles.sin(), angles.cos()], -1)
        y = PF.relu(self.second(PF.relu(self.first(x))))
        y = PF.relu(self.third(paddle.concat([y, x], -1)))
        density = PF.softplus(self.density(y)[..., 0] - 1)
        last = paddle.full([1], 1.0, x.dtype)
        apart = paddle.concat([depth[1:] - depth[:-1], last])
        through = paddle.exp(-density * apart)
        left = paddle.cumprod(through, -1)
        before = paddle.concat([paddle.ones_like(left[:, :1]), left[:, :-1]], -1)
        weights = before * (1 - through)
        colours = PF.sigmoid(self.colour(y))
        light = (weights.unsqueeze(-1) * colours).sum(1)
        behind = 1 - weights.sum(-1, keepdim=True)
        return light + behind, (weights * depth).sum(-1)


def torch_loss(outputs: Any, targets: Any) -> Any:
    light, far = outputs
    return TF.mse_loss(light, targets["light"]) + 0.3 * (1 / far - 1 / targets["far"]).abs().mean()


def paddle_loss(outputs: Any, targets: Any) -> Any:
    light, far = outputs
    bright = PF.mse_loss(light, targets["light"])
    deep = (1 / far - 1 / targets["far"]).abs().mean()
    return bright + 0.3 * deep


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.Adam(model.parameters(), 2e-3, betas=(0.9, 0.99), eps=1e-7)
    return made, torch.optim.lr_scheduler.ExponentialLR(made, 0.5)


def paddle_optimizer(model: Any) -> Any:
    rates = paddle.optimizer.lr.ExponentialDecay(2e-3, 0.5)
    return paddle.optimizer.Adam(rates, 0.9, 0.99, 1e-7, parameters=model.parameters()), rates


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchField, PaddleField, seed)
    some = arrays(seed)
    inputs = [{name: some.normal(size=(5, 3)).astype(np.float32) for name in ("origin", "way")} for _ in range(STEPS)]
    targets = [
        {"light": some.random((5, 3)).astype(np.float32), "far": 0.5 + some.random(5).astype(np.float32)}
        for _ in range(STEPS)
    ]
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
