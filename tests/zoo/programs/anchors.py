"""A detector's head: one map for classes, one for boxes, focal and smooth losses over places; SGD."""

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

STEPS, CLASSES, PLACES = 4, 3, 16


class TorchHead(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body1, self.body2 = tnn.Conv2d(3, 8, 3, padding=1), tnn.Conv2d(8, 8, 3, 2, 1)
        self.pool = tnn.MaxPool2d(3, 2, 1)
        self.lateral, self.smooth = tnn.Conv2d(8, 6, 1), tnn.Conv2d(6, 6, 3, padding=1)
        self.kinds, self.boxes = tnn.Conv2d(6, CLASSES, 1), tnn.Conv2d(6, 4, 1)

    def forward(self, image: Any) -> Any:
        low = TF.relu(self.body1(image))
        high = self.pool(TF.relu(self.body2(TF.relu(low))))
        top = TF.interpolate(self.lateral(high), scale_factor=2, mode="nearest")
        x = TF.relu(self.smooth(top + self.lateral(TF.avg_pool2d(low, 2))))
        kinds = self.kinds(x).permute(0, 2, 3, 1).reshape(-1, PLACES, CLASSES)
        return kinds, self.boxes(x).permute(0, 2, 3, 1).reshape(-1, PLACES, 4)


class PaddleHead(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.body1 = pnn.Conv2D(3, 8, 3, padding=1)
        self.body2 = pnn.Conv2D(8, 8, 3, 2, 1)
        self.pool = pnn.MaxPool2D(3, 2, 1)
        self.lateral = pnn.Conv2D(8, 6, 1)
        self.smooth = pnn.Conv2D(6, 6, 3, padding=1)
        self.kinds = pnn.Conv2D(6, CLASSES, 1)
        self.boxes = pnn.Conv2D(6, 4, 1)

    def forward(self, image: Any) -> Any:
        low = PF.relu(self.body1(image))
        high = PF.relu(self.body2(PF.relu(low)))
        high = self.pool(high)
        top = PF.interpolate(self.lateral(high), scale_factor=2, mode="nearest")
        side = PF.avg_pool2d(low, 2)
        x = PF.relu(self.smooth(top + self.lateral(side)))
        kinds = self.kinds(x).transpose([0, 2, 3, 1]).reshape([-1, PLACES, CLASSES])
        boxes = self.boxes(x).transpose([0, 2, 3, 1]).reshape([-1, PLACES, 4])
        return kinds, boxes


def torch_loss(outputs: Any, targets: Any) -> Any:
    kinds, boxes = outputs
    hot, wanted, found = targets["hot"], targets["boxes"], targets["found"]
    entropy = TF.binary_cross_entropy_with_logits(kinds, hot, reduction="none")
    chance = torch.sigmoid(kinds)
    right = chance * hot + (1 - chance) * (1 - hot)
    focal = (0.25 * hot + 0.75 * (1 - hot)) * (1 - right) ** 2 * entropy
    near = TF.smooth_l1_loss(boxes, wanted, reduction="none").sum(-1)
    return (focal.sum() + (near * found).sum()) / found.sum()


def paddle_loss(outputs: Any, targets: Any) -> Any:
    kinds, boxes = outputs
    hot, wanted, found = targets["hot"], targets["boxes"], targets["found"]
    entropy = PF.binary_cross_entropy_with_logits(kinds, hot, reduction="none")
    chance = PF.sigmoid(kinds)
    right = chance * hot + (1 - chance) * (1 - hot)
    balance = 0.25 * hot + 0.75 * (1 - hot)
    focal = balance * (1 - right) ** 2 * entropy
    near = PF.smooth_l1_loss(boxes, wanted, reduction="none")
    near = near.sum(-1)
    total = focal.sum() + (near * found).sum()
    return total / found.sum()


def torch_optimizer(model: Any) -> Any:
    biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
    others = [p for n, p in model.named_parameters() if not n.endswith("bias")]
    groups = [{"params": others}, {"params": biases, "weight_decay": 0.0}]
    made = torch.optim.SGD(groups, lr=0.02, momentum=0.9, weight_decay=0.02)
    return made, torch.optim.lr_scheduler.PolynomialLR(made, total_iters=8, power=0.9)


def paddle_optimizer(model: Any) -> Any:
    schedule = paddle.optimizer.lr.PolynomialDecay(0.02, decay_steps=8, end_lr=0.0, power=0.9)
    biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
    others = [p for n, p in model.named_parameters() if not n.endswith("bias")]
    made = paddle.optimizer.Momentum(
        schedule,
        momentum=0.9,
        parameters=[{"params": others}, {"params": biases, "weight_decay": 0.0}],
        weight_decay=0.02,
    )
    return made, schedule


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchHead, PaddleHead, seed)
    generator = arrays(seed)
    inputs = [{"image": generator.normal(size=(2, 3, 8, 8)).astype(np.float32)} for _ in range(STEPS)]
    targets = [
        {
            "hot": (generator.uniform(size=(2, PLACES, CLASSES)) < 0.2).astype(np.float32),
            "boxes": generator.normal(size=(2, PLACES, 4)).astype(np.float32),
            "found": (generator.uniform(size=(2, PLACES)) < 0.4).astype(np.float32),
        }
        for _ in range(STEPS)
    ]
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
