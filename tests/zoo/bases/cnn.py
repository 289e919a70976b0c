"""A small CNN with batch norm in train mode: SGD with momentum and decay, step schedule, clipping by global norm."""

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
CLIP = 0.8


class TorchNet(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = tnn.Conv2d(3, 8, 3, padding=1)
        self.bn1 = tnn.BatchNorm2d(8)
        self.act1 = tnn.ReLU()
        self.conv2 = tnn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = tnn.BatchNorm2d(8)
        self.act2 = tnn.LeakyReLU(0.1)
        self.pool = tnn.AvgPool2d(3, stride=2, padding=1)
        self.up = tnn.Upsample(scale_factor=1.5, mode="bilinear", align_corners=False)
        self.drop = tnn.Dropout(0.2)
        self.fc1 = tnn.Linear(8 * 6 * 6, 16)
        self.norm = tnn.LayerNorm(16)
        self.gelu = tnn.GELU()
        self.square = tnn.Linear(16, 16)
        self.fc2 = tnn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act1(self.bn1(self.conv1(x)))
        x = x + self.act2(self.bn2(self.conv2(x)))
        x = self.up(self.pool(x)).flatten(1)
        x = self.gelu(self.norm(self.fc1(self.drop(x))))
        return self.fc2(torch.tanh(self.square(x)))


class PaddleNet(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pnn.Conv2D(3, 8, 3, padding=1)
        self.bn1 = unbiased(pnn.BatchNorm2D(8))
        self.act1 = pnn.ReLU()
        self.conv2 = pnn.Conv2D(8, 8, 3, padding=1, bias_attr=False)
        self.bn2 = unbiased(pnn.BatchNorm2D(8))
        self.act2 = pnn.LeakyReLU(0.1)
        self.pool = pnn.AvgPool2D(3, stride=2, padding=1, exclusive=False)
        self.up = pnn.Upsample(scale_factor=1.5, mode="bilinear", align_corners=False)
        self.drop = pnn.Dropout(0.2)
        self.fc1 = pnn.Linear(8 * 6 * 6, 16)
        self.norm = pnn.LayerNorm(16)
        self.gelu = pnn.GELU()
        self.square = pnn.Linear(16, 16)
        self.fc2 = pnn.Linear(16, 10)

    def branch(self, x: Any) -> Any:
        return self.act2(self.bn2(self.conv2(x)))

    def flat(self, x: Any) -> Any:
        return x.flatten(1)

    def squash(self, x: Any) -> Any:
        return paddle.tanh(x)

    def forward(self, x: Any) -> Any:
        x = self.act1(self.bn1(self.conv1(x)))
        x = x + self.branch(x)
        x = self.flat(self.up(self.pool(x)))
        x = self.gelu(self.norm(self.fc1(self.drop(x))))
        return self.fc2(self.squash(self.square(x)))


def unbiased(layer: Any) -> Any:
    """A paddle batch norm whose running variance has the divisor N - 1, as torch has it."""

    def before(layer: Any, inputs: Any) -> None:
        layer.__dict__["kept_variance"] = layer._variance.numpy().copy()

    def after(layer: Any, inputs: Any, output: Any) -> None:
        if not layer.training or layer._use_global_stats:
            return
        kept, now = layer.__dict__["kept_variance"], layer._variance.numpy()
        count = inputs[0].size // inputs[0].shape[1]
        layer._variance.set_value(now + (now - layer._momentum * kept) / (count - 1))

    layer.register_forward_pre_hook(before)
    layer.register_forward_post_hook(after)
    return layer


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)
    return made, torch.optim.lr_scheduler.StepLR(made, 2, 0.5)


def paddle_optimizer(model: Any, **other: Any) -> Any:
    """The port's optimizer; `other` replaces its settings."""
    schedule = other.pop("schedule", None) or paddle.optimizer.lr.StepDecay(0.1, 2, 0.5)
    given = {
        "momentum": 0.9,
        "weight_decay": 1e-2,
        "grad_clip": paddle.nn.ClipGradByGlobalNorm(CLIP),
        "parameters": model.parameters(),
    }
    return paddle.optimizer.Momentum(schedule, **{**given, **other}), schedule


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.cross_entropy(outputs, targets)


def paddle_loss(outputs: Any, targets: Any) -> Any:
    return PF.cross_entropy(outputs, targets)


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    torch_loss(model(**inputs), targets).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad()


def batches(seed: int, steps: int = STEPS) -> tuple[list[Any], list[Any]]:
    generator = arrays(seed)
    inputs = [
        {"x": (0.5 + generator.normal(size=(4, 3, 8, 8)) * [[[[1.0]], [[0.7]], [[1.3]]]]).astype(np.float32)}
        for _ in range(steps)
    ]
    return inputs, [generator.integers(0, 10, 4) for _ in range(steps)]


def trial(seed: int = 0) -> Trial:
    torch.manual_seed(seed)
    paddle.seed(seed + 100)
    reference, candidate = TorchNet().train(), PaddleNet()
    for module in (reference.bn1, reference.bn2, reference.norm):
        # Weights of one and biases of zero would hide mistakes.
        tnn.init.uniform_(module.weight, 0.5, 1.5)
        tnn.init.normal_(module.bias, 0, 0.3)
    candidate.train()
    transfer_weights(reference, candidate, on_difference="report")
    inputs, targets = batches(seed)
    return Trial(
        reference,
        candidate,
        inputs,
        targets,
        (torch_loss, paddle_loss),
        (torch_optimizer, paddle_optimizer),
        (torch_step, None),
    )
