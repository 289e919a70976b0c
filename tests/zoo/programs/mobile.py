"""A MobileNetV3-like block: depthwise convolution, squeeze and excite, hard swish; weighted classes, SGD."""

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

STEPS, CLASSES = 4, 4
CLASS_WEIGHTS = [1.0, 2.0, 0.5, 1.5]


class TorchMobile(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm0 = tnn.Conv2d(3, 6, 3, 2, 1, bias=False), tnn.BatchNorm2d(6)
        self.grow, self.norm1 = tnn.Conv2d(6, 12, 1, bias=False), tnn.BatchNorm2d(12)
        self.depth, self.norm2 = tnn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False), tnn.BatchNorm2d(12)
        self.squeeze, self.excite = tnn.Conv2d(12, 4, 1), tnn.Conv2d(4, 12, 1)
        self.shrink, self.norm3 = tnn.Conv2d(12, 6, 1, bias=False), tnn.BatchNorm2d(6)
        self.drop, self.head = tnn.Dropout(0.25), tnn.Linear(6, CLASSES)

    def forward(self, image: Any) -> Any:
        x = TF.hardswish(self.norm0(self.stem(image)))
        y = TF.hardswish(self.norm1(self.grow(x)))
        y = TF.hardswish(self.norm2(self.depth(y)))
        gate = TF.hardsigmoid(self.excite(TF.relu(self.squeeze(TF.adaptive_avg_pool2d(y, 1)))))
        x = x + self.norm3(self.shrink(y * gate))
        x = TF.interpolate(x, size=(6, 6), mode="bilinear", align_corners=False)
        return self.head(self.drop(x.mean((2, 3))))


class PaddleMobile(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem = pnn.Conv2D(3, 6, 3, 2, 1, bias_attr=False)
        self.norm0 = pnn.BatchNorm2D(6)
        self.grow = pnn.Conv2D(6, 12, 1, bias_attr=False)
        self.norm1 = pnn.BatchNorm2D(12)
        self.depth = pnn.Conv2D(12, 12, 3, padding=1, groups=12, bias_attr=False)
        self.norm2 = pnn.BatchNorm2D(12)
        self.squeeze = pnn.Conv2D(12, 4, 1)
        self.excite = pnn.Conv2D(4, 12, 1)
        self.shrink = pnn.Conv2D(12, 6, 1, bias_attr=False)
        self.norm3 = pnn.BatchNorm2D(6)
        self.drop = pnn.Dropout(0.25)
        self.head = pnn.Linear(6, CLASSES)

    def forward(self, image: Any) -> Any:
        x = PF.hardswish(self.norm0(self.stem(image)))
        y = PF.hardswish(self.norm1(self.grow(x)))
        y = PF.hardswish(self.norm2(self.depth(y)))
        pooled = PF.adaptive_avg_pool2d(y, 1)
        gate = self.excite(PF.relu(self.squeeze(pooled)))
        gate = PF.hardsigmoid(gate)
        y = y * gate
        x = x + self.norm3(self.shrink(y))
        x = PF.interpolate(x, size=[6, 6], mode="bilinear", align_corners=False)
        x = x.mean([2, 3])
        return self.head(self.drop(x))


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.cross_entropy(outputs, targets, weight=torch.tensor(CLASS_WEIGHTS, dtype=outputs.dtype))


def paddle_loss(outputs: Any, targets: Any) -> Any:
    weights = paddle.to_tensor(CLASS_WEIGHTS, dtype=outputs.dtype)
    return PF.cross_entropy(outputs, targets, weight=weights)


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.8, weight_decay=1e-2)
    return made, torch.optim.lr_scheduler.CosineAnnealingLR(made, 10, eta_min=0.004)


def paddle_optimizer(model: Any) -> Any:
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.08, 10, eta_min=0.004)
    made = paddle.optimizer.Momentum(
        schedule,
        momentum=0.8,
        parameters=model.parameters(),
        weight_decay=1e-2,
        grad_clip=paddle.nn.ClipGradByValue(0.15),
    )
    return made, schedule


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    torch_loss(model(**inputs), targets).backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.15)
    optimizer.step()
    optimizer.zero_grad()


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchMobile, PaddleMobile, seed)
    for model in (reference, candidate):
        model.eval()
    generator = arrays(seed)
    inputs = [{"image": generator.normal(size=(6, 3, 8, 8)).astype(np.float32)} for _ in range(STEPS)]
    targets = [generator.integers(0, CLASSES, 6) for _ in range(STEPS)]
    return Trial(
        reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer),
        (torch_step, None),
    )  # fmt: skip
