"""Segments of a picture by dilated branches: separable convolutions, a pyramid, Dice beside cross-entropy; SGD."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from zoo.bases.cnn import unbiased
from zoo.trial import Trial, arrays, with_weights

STEPS, WIDTH, KINDS, IGNORED = 3, 6, 3, 255


class TorchShapes(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = tnn.Conv2d(3, WIDTH, 3, 2, 1, bias=False), tnn.BatchNorm2d(WIDTH)
        self.near = tnn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.far = tnn.Conv2d(WIDTH, WIDTH, 3, padding=2, dilation=2)
        self.all, self.join = tnn.Conv2d(WIDTH, WIDTH, 1), tnn.Conv2d(3 * WIDTH, WIDTH, 1)
        self.drop, self.head = tnn.Dropout2d(0.0), tnn.Conv2d(WIDTH, KINDS, 1)

    def forward(self, image: Any) -> Any:
        x = TF.relu(self.norm(self.stem(image)))
        whole = self.all(TF.adaptive_avg_pool2d(x, 1)).expand(-1, -1, *x.shape[2:])
        x = TF.relu(self.join(torch.cat([self.near(x), self.far(x), whole], 1)))
        return TF.interpolate(self.head(self.drop(x)), scale_factor=2, mode="bilinear", align_corners=False)


class PaddleShapes(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem = pnn.Conv2D(3, WIDTH, 3, 2, 1, bias_attr=False)
        self.norm = unbiased(pnn.BatchNorm2D(WIDTH))
        self.near = pnn.Conv2D(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.far = pnn.Conv2D(WIDTH, WIDTH, 3, padding=2, dilation=2)
        self.all, self.join = pnn.Conv2D(WIDTH, WIDTH, 1), pnn.Conv2D(3 * WIDTH, WIDTH, 1)
        self.drop, self.head = pnn.Dropout2D(0.0), pnn.Conv2D(WIDTH, KINDS, 1)

    def forward(self, image: Any) -> Any:
        x = PF.relu(self.norm(self.stem(image)))
        whole = self.all(PF.adaptive_avg_pool2d(x, 1)).expand([-1, -1, *x.shape[2:]])
        near = self.near(x)
        x = paddle.concat([near, self.far(x), whole], 1)
        x = PF.relu(self.join(x))
        x = self.head(self.drop(x))
        return PF.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def torch_loss(outputs: Any, targets: Any) -> Any:
    known = targets != IGNORED
    chance = outputs.softmax(1) * known[:, None]
    hot = TF.one_hot(torch.where(known, targets, 0), KINDS).permute(0, 3, 1, 2) * known[:, None]
    both, size = (chance * hot).sum((0, 2, 3)), (chance + hot).sum((0, 2, 3))
    return TF.cross_entropy(outputs, targets, ignore_index=IGNORED) + 1 - ((2 * both + 1) / (size + 1)).mean()


def paddle_loss(outputs: Any, targets: Any) -> Any:
    known = targets != IGNORED
    mask = known.unsqueeze(1).astype(outputs.dtype)
    chance = PF.softmax(outputs, 1) * mask
    hot = PF.one_hot(paddle.where(known, targets, paddle.zeros_like(targets)), KINDS)
    hot = hot.transpose([0, 3, 1, 2]).astype(outputs.dtype) * mask
    both = (chance * hot).sum([0, 2, 3])
    size = (chance + hot).sum([0, 2, 3])
    dice = (2 * both + 1) / (size + 1)
    hard = PF.cross_entropy(outputs, targets, ignore_index=IGNORED, axis=1)
    return hard + 1 - dice.mean()


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    for image, wanted in zip(inputs["image"].chunk(2), targets.chunk(2), strict=True):
        (torch_loss(model(image), wanted) / 2).backward()
    optimizer.step()
    optimizer.zero_grad()


def paddle_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    for image, wanted in zip(inputs["image"].chunk(2), targets.chunk(2), strict=True):
        loss = paddle_loss(model(image), wanted)
        (loss / 2).backward()
    optimizer.step()
    optimizer.clear_grad()


def torch_optimizer(model: Any) -> Any:
    heads = [one for name, one in model.named_parameters() if name.startswith("head")]
    others = [one for name, one in model.named_parameters() if not name.startswith("head")]
    groups = [{"params": others}, {"params": heads, "lr": 0.2}]
    made = torch.optim.SGD(groups, 0.02, momentum=0.9, weight_decay=1e-3, nesterov=True)
    return made, torch.optim.lr_scheduler.PolynomialLR(made, 6, 0.9)


def paddle_optimizer(model: Any) -> Any:
    heads = [one for name, one in model.named_parameters() if name.startswith("head")]
    others = [one for name, one in model.named_parameters() if not name.startswith("head")]
    rates = paddle.optimizer.lr.PolynomialDecay(0.02, 6, 0.0, 0.9)
    made = paddle.optimizer.Momentum(
        rates,
        0.9,
        parameters=[{"params": others}, {"params": heads, "learning_rate": 10.0}],
        use_nesterov=True,
        weight_decay=1e-3,
    )
    return made, rates


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchShapes, PaddleShapes, seed)
    some = arrays(seed)
    inputs = [{"image": some.normal(size=(4, 3, 8, 8)).astype(np.float32)} for _ in range(STEPS)]
    targets = [
        np.where(some.random((4, 8, 8)) < 0.2, IGNORED, some.integers(0, KINDS, (4, 8, 8))) for _ in range(STEPS)
    ]
    return Trial(
        reference, candidate, inputs, targets,
        optimizer=(torch_optimizer, paddle_optimizer), step=(torch_step, paddle_step),
    )  # fmt: skip
