"""A convolutional autoencoder with given noise: likelihood and divergence in one loss; Adam."""

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

STEPS, CODE = 4, 5


class TorchVae(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = tnn.Conv2d(1, 4, 3, 2, 1), tnn.Conv2d(4, 6, 3, 2, 1)
        self.norm, self.act = tnn.BatchNorm2d(6), tnn.LeakyReLU(0.2)
        self.mean, self.logvar = tnn.Linear(24, CODE), tnn.Linear(24, CODE)
        self.grow = tnn.Linear(CODE, 24)
        self.up1, self.up2 = tnn.ConvTranspose2d(6, 4, 4, 2, 1), tnn.ConvTranspose2d(4, 1, 4, 2, 1)

    def forward(self, image: Any, noise: Any) -> Any:
        x = self.act(self.norm(self.conv2(self.act(self.conv1(image))))).flatten(1)
        mean, logvar = self.mean(x), self.logvar(x).clamp(-4, 4)
        code = mean + noise * torch.exp(0.5 * logvar)
        x = TF.relu(self.grow(code)).view(-1, 6, 2, 2)
        return self.up2(self.act(self.up1(x))), mean, logvar


class PaddleVae(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pnn.Conv2D(1, 4, 3, 2, 1)
        self.conv2 = pnn.Conv2D(4, 6, 3, 2, 1)
        self.norm = pnn.BatchNorm2D(6)
        self.act = pnn.LeakyReLU(0.2)
        self.mean = pnn.Linear(24, CODE)
        self.logvar = pnn.Linear(24, CODE)
        self.grow = pnn.Linear(CODE, 24)
        self.up1 = pnn.Conv2DTranspose(6, 4, 4, 2, 1)
        self.up2 = pnn.Conv2DTranspose(4, 1, 4, 2, 1)

    def forward(self, image: Any, noise: Any) -> Any:
        x = self.act(self.conv1(image))
        x = self.act(self.norm(self.conv2(x)))
        x = x.flatten(1)
        mean = self.mean(x)
        logvar = self.logvar(x).clip(-4, 4)
        spread = paddle.exp(0.5 * logvar)
        code = mean + noise * spread
        x = PF.relu(self.grow(code))
        x = x.reshape([-1, 6, 2, 2])
        x = self.act(self.up1(x))
        return self.up2(x), mean, logvar


def torch_loss(outputs: Any, targets: Any) -> Any:
    picture, mean, logvar = outputs
    near = TF.binary_cross_entropy_with_logits(picture, targets, reduction="sum") / len(targets)
    return near + 0.5 * (-0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1)).mean()


def paddle_loss(outputs: Any, targets: Any) -> Any:
    picture, mean, logvar = outputs
    near = PF.binary_cross_entropy_with_logits(picture, targets, reduction="sum")
    near = near / targets.shape[0]
    far = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1)
    return near + 0.5 * far.mean()


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.8, 0.99), eps=1e-6, weight_decay=1e-2)
    return made, torch.optim.lr_scheduler.ExponentialLR(made, 0.9)


def paddle_optimizer(model: Any) -> Any:
    schedule = paddle.optimizer.lr.ExponentialDecay(4e-3, 0.9)
    made = paddle.optimizer.Adam(
        schedule,
        beta1=0.8,
        beta2=0.99,
        epsilon=1e-6,
        parameters=model.parameters(),
        weight_decay=1e-2,
    )
    return made, schedule


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchVae, PaddleVae, seed)
    for model in (reference, candidate):
        model.eval()
    generator = arrays(seed)
    inputs = [
        {
            "image": generator.uniform(size=(4, 1, 8, 8)).astype(np.float32),
            "noise": generator.normal(size=(4, CODE)).astype(np.float32),
        }
        for _ in range(STEPS)
    ]
    targets = [one["image"] for one in inputs]
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
