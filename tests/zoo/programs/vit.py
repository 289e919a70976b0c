"""A vision transformer: patches, class token, pre-norm blocks with packed projections; smoothed labels, SGD."""

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

STEPS, WIDTH, HEADS, CLASSES, PARTS = 4, 12, 3, 5, 2


class TorchBlock(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = tnn.LayerNorm(WIDTH, eps=1e-6), tnn.LayerNorm(WIDTH, eps=1e-6)
        self.qkv, self.proj = tnn.Linear(WIDTH, 3 * WIDTH), tnn.Linear(WIDTH, WIDTH)
        self.fc1, self.act, self.fc2 = tnn.Linear(WIDTH, 20), tnn.GELU(), tnn.Linear(20, WIDTH)
        self.scale = tnn.Parameter(torch.full((WIDTH,), 0.5))

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = (q * (WIDTH // HEADS) ** -0.5) @ k.transpose(-1, -2)
        x = x + self.scale * self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


class TorchVit(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = tnn.Conv2d(3, WIDTH, 4, 4)
        self.token = tnn.Parameter(torch.randn(1, 1, WIDTH))
        self.places = tnn.Parameter(torch.randn(1, 5, WIDTH))
        self.blocks = tnn.Sequential(TorchBlock(), TorchBlock())
        self.norm, self.head = tnn.LayerNorm(WIDTH, eps=1e-6), tnn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        x = (image - 0.45) / 0.25
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class PaddleBlock(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = pnn.LayerNorm(WIDTH, epsilon=1e-6)
        self.norm2 = pnn.LayerNorm(WIDTH, epsilon=1e-6)
        self.qkv = pnn.Linear(WIDTH, 3 * WIDTH)
        self.proj = pnn.Linear(WIDTH, WIDTH)
        self.fc1 = pnn.Linear(WIDTH, 20)
        self.act = pnn.GELU()
        self.fc2 = pnn.Linear(20, WIDTH)
        self.scale = self.create_parameter([WIDTH])

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        packed = self.qkv(self.norm1(x)).reshape([b, n, 3, HEADS, -1])
        q, k, v = packed.transpose([2, 0, 3, 1, 4]).unbind(0)
        q = q * (WIDTH // HEADS) ** -0.5
        scores = q @ k.transpose([0, 1, 3, 2])
        chances = PF.softmax(scores, -1)
        mixed = (chances @ v).transpose([0, 2, 1, 3])
        mixed = mixed.reshape([b, n, WIDTH])
        x = x + self.scale * self.proj(mixed)
        y = self.act(self.fc1(self.norm2(x)))
        return x + self.fc2(y)


class PaddleVit(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pnn.Conv2D(3, WIDTH, 4, 4)
        self.token = self.create_parameter([1, 1, WIDTH])
        self.places = self.create_parameter([1, 5, WIDTH])
        self.blocks = pnn.Sequential(PaddleBlock(), PaddleBlock())
        self.norm = pnn.LayerNorm(WIDTH, epsilon=1e-6)
        self.head = pnn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        x = (image - 0.45) / 0.25
        x = self.patch(x)
        x = x.flatten(2).transpose([0, 2, 1])
        token = self.token.expand([x.shape[0], -1, -1])
        x = paddle.concat([token, x], 1)
        x = x + self.places
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0])


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.cross_entropy(outputs, targets, label_smoothing=0.1)


def paddle_loss(outputs: Any, targets: Any) -> Any:
    return PF.cross_entropy(outputs, targets, label_smoothing=0.1)


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-3)
    return made, torch.optim.lr_scheduler.MultiStepLR(made, [1, 3], 0.2)


def paddle_optimizer(model: Any) -> Any:
    schedule = paddle.optimizer.lr.MultiStepDecay(0.05, [1, 3], 0.2)
    made = paddle.optimizer.Momentum(
        schedule,
        momentum=0.9,
        parameters=model.parameters(),
        use_nesterov=True,
        weight_decay=5e-3,
    )
    return made, schedule


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    for part in range(PARTS):
        (torch_loss(model(inputs["image"][part::PARTS]), targets[part::PARTS]) / PARTS).backward()
    optimizer.step()
    optimizer.zero_grad()


def paddle_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    for part in range(PARTS):
        image, labels = inputs["image"][part::PARTS], targets[part::PARTS]
        loss = paddle_loss(model(image), labels)
        (loss / PARTS).backward()
    optimizer.step()
    optimizer.clear_grad()


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchVit, PaddleVit, seed)
    generator = arrays(seed)
    inputs = [{"image": generator.uniform(size=(4, 3, 8, 8)).astype(np.float32)} for _ in range(STEPS)]
    targets = [generator.integers(0, CLASSES, 4) for _ in range(STEPS)]
    return Trial(
        reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer),
        (torch_step, paddle_step),
    )  # fmt: skip
