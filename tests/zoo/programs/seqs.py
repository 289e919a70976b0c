"""A GRU that reads, one that writes with attention, soft targets of a teacher; Adagrad, rates by an inverse root."""

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

STEPS, WIDTH, WORDS, LENGTH, PAD = 4, 8, 13, 5, 0
TEMPERATURE = 2.0


class TorchSeqs(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = tnn.Embedding(WORDS, WIDTH)
        self.reader, self.writer = tnn.GRU(WIDTH, WIDTH, batch_first=True), tnn.GRU(WIDTH, WIDTH, batch_first=True)
        self.query, self.join = tnn.Linear(WIDTH, WIDTH), tnn.Linear(2 * WIDTH, WIDTH)
        self.head = tnn.Linear(WIDTH, WORDS)

    def forward(self, read: Any, written: Any) -> Any:
        memory, state = self.reader(self.words(read))
        x, _ = self.writer(self.words(written), state)
        scores = self.query(x) @ memory.transpose(1, 2)
        scores = scores.masked_fill((read == PAD)[:, None], -1e9)
        x = torch.tanh(self.join(torch.cat([x, scores.softmax(-1) @ memory], -1)))
        return self.head(x)


class PaddleSeqs(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words = pnn.Embedding(WORDS, WIDTH)
        self.reader = pnn.GRU(WIDTH, WIDTH)
        self.writer = pnn.GRU(WIDTH, WIDTH)
        self.query = pnn.Linear(WIDTH, WIDTH)
        self.join = pnn.Linear(2 * WIDTH, WIDTH)
        self.head = pnn.Linear(WIDTH, WORDS)

    def forward(self, read: Any, written: Any) -> Any:
        memory, state = self.reader(self.words(read))
        x, _ = self.writer(self.words(written), state)
        scores = self.query(x) @ memory.transpose([0, 2, 1])
        hidden = (read == PAD).unsqueeze(1)
        scores = paddle.where(hidden, paddle.full([], -1e9, scores.dtype), scores)
        chances = PF.softmax(scores, -1)
        both = paddle.concat([x, chances @ memory], -1)
        x = paddle.tanh(self.join(both))
        return self.head(x)


def torch_loss(outputs: Any, targets: Any) -> Any:
    labels, teacher = targets["labels"], targets["teacher"]
    hard = TF.cross_entropy(outputs.transpose(1, 2), labels, ignore_index=PAD, reduction="none")
    soft = TF.kl_div(
        (outputs / TEMPERATURE).log_softmax(-1), (teacher / TEMPERATURE).softmax(-1), reduction="batchmean"
    )
    return hard.sum() / (labels != PAD).sum() + 0.3 * TEMPERATURE**2 * soft


def paddle_loss(outputs: Any, targets: Any) -> Any:
    labels, teacher = targets["labels"], targets["teacher"]
    hard = PF.cross_entropy(outputs, labels, ignore_index=PAD, reduction="none")
    hard = hard.sum() / (labels != PAD).astype(hard.dtype).sum()
    ours = PF.log_softmax(outputs / TEMPERATURE, -1)
    theirs = PF.softmax(teacher / TEMPERATURE, -1)
    soft = PF.kl_div(ours, theirs, reduction="batchmean")
    return hard + 0.3 * TEMPERATURE**2 * soft


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.Adagrad(model.parameters(), lr=0.02, eps=1e-6, weight_decay=1e-2)
    return made, torch.optim.lr_scheduler.LambdaLR(made, lambda step: min((step + 1) ** -0.5, (step + 1) * 2**-1.5))


def paddle_rate(step: int) -> float:
    return min((step + 1) ** -0.5, (step + 1) * 2**-1.5)


def paddle_optimizer(model: Any) -> Any:
    schedule = paddle.optimizer.lr.LambdaDecay(0.02, paddle_rate)
    made = paddle.optimizer.Adagrad(
        schedule,
        epsilon=1e-6,
        parameters=model.parameters(),
        weight_decay=1e-2,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0),
    )
    return made, schedule


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    torch_loss(model(**inputs), targets).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def paddle_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    paddle_loss(model(**inputs), targets).backward()
    optimizer.step()
    optimizer.clear_grad()


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchSeqs, PaddleSeqs, seed)
    generator = arrays(seed)
    lengths = np.array([LENGTH, LENGTH - 1, LENGTH - 2])
    inside = np.arange(LENGTH)[None] < lengths[:, None]
    inputs, targets = [], []
    for _ in range(STEPS):
        read, written, labels = (np.where(inside, generator.integers(1, WORDS, (3, LENGTH)), PAD) for _ in range(3))
        inputs.append({"read": read, "written": written})
        targets.append({"labels": labels, "teacher": generator.normal(size=(3, LENGTH, WORDS)).astype(np.float32)})
    return Trial(
        reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer),
        (torch_step, paddle_step),
    )  # fmt: skip
