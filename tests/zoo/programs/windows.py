"""Attention inside shifted windows with a table of relative places; AdamW whose rates fall with depth."""

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

STEPS, SIDE, WINDOW, WIDTH, HEADS = 3, 6, 3, 8, 2
TOKENS = WINDOW * WINDOW


def places() -> Any:
    at = np.stack(np.meshgrid(np.arange(WINDOW), np.arange(WINDOW), indexing="ij")).reshape(2, -1)
    apart = at[:, :, None] - at[:, None] + WINDOW - 1
    return apart[0] * (2 * WINDOW - 1) + apart[1]


class TorchWindows(tnn.Module):
    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm1, self.norm2 = tnn.LayerNorm(WIDTH), tnn.LayerNorm(WIDTH)
        self.qkv, self.out = tnn.Linear(WIDTH, 3 * WIDTH), tnn.Linear(WIDTH, WIDTH)
        self.near = tnn.Parameter(torch.zeros((2 * WINDOW - 1) ** 2, HEADS))
        self.grow, self.shrink = tnn.Linear(WIDTH, 16), tnn.Linear(16, WIDTH)

    def forward(self, x: Any) -> Any:
        y = self.norm1(x).roll((-self.shift, -self.shift), (1, 2))
        parts = SIDE // WINDOW
        y = y.reshape(-1, parts, WINDOW, parts, WINDOW, WIDTH).transpose(2, 3).reshape(-1, TOKENS, WIDTH)
        q, k, v = self.qkv(y).reshape(-1, TOKENS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        near = self.near[torch.from_numpy(places()).flatten()].reshape(TOKENS, TOKENS, HEADS).permute(2, 0, 1)
        chances = ((q * (WIDTH // HEADS) ** -0.5) @ k.transpose(-1, -2) + near).softmax(-1)
        y = self.out((chances @ v).transpose(1, 2).flatten(2))
        y = y.reshape(-1, parts, parts, WINDOW, WINDOW, WIDTH).transpose(2, 3).reshape(-1, SIDE, SIDE, WIDTH)
        x = x + y.roll((self.shift, self.shift), (1, 2))
        return x + self.shrink(TF.gelu(self.grow(self.norm2(x))))


class TorchSwin(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = tnn.Conv2d(3, WIDTH, 2, 2)
        self.first, self.second = TorchWindows(0), TorchWindows(1)
        self.merge, self.norm = tnn.Linear(4 * WIDTH, WIDTH, bias=False), tnn.LayerNorm(4 * WIDTH)
        self.head = tnn.Linear(WIDTH, 5)

    def forward(self, image: Any) -> Any:
        x = self.second(self.first(self.patch(image).permute(0, 2, 3, 1)))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.head(self.merge(self.norm(x)).mean((1, 2)))


class PaddleWindows(pnn.Layer):
    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm1, self.norm2 = pnn.LayerNorm(WIDTH), pnn.LayerNorm(WIDTH)
        self.qkv, self.out = pnn.Linear(WIDTH, 3 * WIDTH), pnn.Linear(WIDTH, WIDTH)
        self.near = self.create_parameter([(2 * WINDOW - 1) ** 2, HEADS])
        self.grow, self.shrink = pnn.Linear(WIDTH, 16), pnn.Linear(16, WIDTH)

    def forward(self, x: Any) -> Any:
        y = self.norm1(x)
        y = y.roll((-self.shift, -self.shift), (1, 2))
        parts = SIDE // WINDOW
        y = y.reshape([-1, parts, WINDOW, parts, WINDOW, WIDTH])
        y = y.transpose([0, 1, 3, 2, 4, 5]).reshape([-1, TOKENS, WIDTH])
        q, k, v = self.qkv(y).reshape([-1, TOKENS, 3, HEADS, WIDTH // HEADS]).transpose([2, 0, 3, 1, 4]).unbind(0)
        index = paddle.to_tensor(places().flatten())
        near = self.near[index].reshape([TOKENS, TOKENS, HEADS])
        near = near.transpose([2, 0, 1])
        q = q * (WIDTH // HEADS) ** -0.5
        scores = q @ k.transpose([0, 1, 3, 2])
        scores = scores + near
        chances = PF.softmax(scores, -1)
        y = self.out((chances @ v).transpose([0, 2, 1, 3]).flatten(2))
        y = y.reshape([-1, parts, parts, WINDOW, WINDOW, WIDTH])
        y = y.transpose([0, 1, 3, 2, 4, 5]).reshape([-1, SIDE, SIDE, WIDTH])
        y = y.roll((self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.shrink(PF.gelu(self.grow(self.norm2(x))))


class PaddleSwin(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pnn.Conv2D(3, WIDTH, 2, 2)
        self.first, self.second = PaddleWindows(0), PaddleWindows(1)
        self.merge, self.norm = pnn.Linear(4 * WIDTH, WIDTH, bias_attr=False), pnn.LayerNorm(4 * WIDTH)
        self.head = pnn.Linear(WIDTH, 5)

    def forward(self, image: Any) -> Any:
        x = self.patch(image).transpose([0, 2, 3, 1])
        x = self.second(self.first(x))
        x = paddle.concat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        x = self.merge(self.norm(x))
        return self.head(x.mean([1, 2]))


def torch_loss(outputs: Any, targets: Any) -> Any:
    return -(targets * outputs.log_softmax(-1)).sum(-1).mean()


def paddle_loss(outputs: Any, targets: Any) -> Any:
    logs = PF.log_softmax(outputs, -1)
    return -(targets * logs).sum(-1).mean()


def depth(name: str) -> int:
    return ("patch", "first", "second", "merge", "norm", "head").index(name.partition(".")[0])


def torch_optimizer(model: Any) -> Any:
    groups = [{"params": [one], "lr": 2e-3 * 0.7 ** (5 - depth(name))} for name, one in model.named_parameters()]
    return torch.optim.AdamW(groups, 2e-3, weight_decay=0.1)


def paddle_optimizer(model: Any) -> Any:
    fall = 0.7
    groups = [
        {"params": [one], "learning_rate": fall ** (5 - depth(name)), "weight_decay": 0.1}
        for name, one in model.named_parameters()
    ]
    return paddle.optimizer.AdamW(2e-3, parameters=groups, weight_decay=0.1)


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchSwin, PaddleSwin, seed)
    some = arrays(seed)
    inputs = [{"image": some.normal(size=(2, 3, 12, 12)).astype(np.float32)} for _ in range(STEPS)]
    targets = [some.dirichlet(np.ones(5), 2).astype(np.float32) for _ in range(STEPS)]
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
