"""A student that follows an average of itself: two views, a predictor, no gradient to the teacher; momentum."""

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

STEPS, WIDTH = 4, 8


class TorchEncoder(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = tnn.Conv1d(2, WIDTH, 3, padding=1), tnn.BatchNorm1d(WIDTH)
        self.out = tnn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.out(TF.mish(self.norm(self.conv(x))).mean(-1))


class TorchStudent(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = TorchEncoder()
        self.guess1, self.guess2 = tnn.Linear(WIDTH, 12), tnn.Linear(12, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.guess2(TF.relu(self.guess1(self.encoder(x))))


class PaddleEncoder(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = pnn.Conv1D(2, WIDTH, 3, padding=1), unbiased(pnn.BatchNorm1D(WIDTH))
        self.out = pnn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        y = self.norm(self.conv(x))
        y = PF.mish(y).mean(-1)
        return self.out(y)


class PaddleStudent(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = PaddleEncoder()
        self.guess1, self.guess2 = pnn.Linear(WIDTH, 12), pnn.Linear(12, WIDTH)

    def forward(self, x: Any) -> Any:
        y = self.encoder(x)
        y = PF.relu(self.guess1(y))
        return self.guess2(y)


def torch_apart(one: Any, other: Any) -> Any:
    return 2 - 2 * (TF.normalize(one, dim=-1) * TF.normalize(other, dim=-1)).sum(-1).mean()


def torch_step(models: Any, optimizers: Any, inputs: Any, targets: Any) -> None:
    student, teacher = models["student"], models["teacher"]
    with torch.no_grad():
        left, right = teacher(inputs["left"]), teacher(inputs["right"])
    loss = torch_apart(student(inputs["left"]), right) + torch_apart(student(inputs["right"]), left)
    (0.5 * loss).backward()
    optimizers["student"].step()
    optimizers["student"].zero_grad()
    with torch.no_grad():
        for slow, quick in zip(teacher.parameters(), student.encoder.parameters(), strict=True):
            slow.mul_(0.9).add_(0.1 * quick)


def paddle_apart(one: Any, other: Any) -> Any:
    one, other = PF.normalize(one, axis=-1), PF.normalize(other, axis=-1)
    return 2 - 2 * (one * other).sum(-1).mean()


def trained(model: Any) -> list[Any]:
    """Without running statistics, which are parameters in paddle."""
    return [one for one in model.parameters() if not one.stop_gradient]


def paddle_step(models: Any, optimizers: Any, inputs: Any, targets: Any) -> None:
    student, teacher = models["student"], models["teacher"]
    with paddle.no_grad():
        left = teacher(inputs["left"])
        right = teacher(inputs["right"])
    loss = paddle_apart(student(inputs["left"]), right)
    loss = loss + paddle_apart(student(inputs["right"]), left)
    (0.5 * loss).backward()
    optimizers["student"].step()
    optimizers["student"].clear_grad()
    with paddle.no_grad():
        for slow, quick in zip(trained(teacher), trained(student.encoder), strict=True):
            slow.set_value(0.9 * slow + 0.1 * quick)


def torch_optimizers(models: Any) -> Any:
    return {"student": torch.optim.SGD(models["student"].parameters(), 0.05, momentum=0.8, weight_decay=1e-2)}


def paddle_optimizers(models: Any) -> Any:
    made = paddle.optimizer.Momentum(0.05, 0.8, parameters=models["student"].parameters(), weight_decay=1e-2)
    return {"student": made}


def trial(seed: int = 0) -> Trial:
    pairs = {
        "student": with_weights(TorchStudent, PaddleStudent, seed),
        "teacher": with_weights(TorchEncoder, PaddleEncoder, seed + 1),
    }
    some = arrays(seed)
    inputs = [
        {name: some.normal(size=(4, 2, 7)).astype(np.float32) for name in ("left", "right")} for _ in range(STEPS)
    ]
    return Trial(
        {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()},
        inputs, None, optimizer=(torch_optimizers, paddle_optimizers), step=(torch_step, paddle_step),
    )  # fmt: skip
