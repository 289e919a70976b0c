"""A two-layer LSTM language classifier with GRU on top: Adam with coupled decay, exponential schedule, no clipping."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from reprod_log.transfer import transfer_weights
from zoo.trial import Trial, arrays

STEPS, WORDS, WIDTH = 3, 25, 12


class TorchReader(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = tnn.Embedding(WORDS, WIDTH)
        self.lstm = tnn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.gru = tnn.GRU(WIDTH, WIDTH, batch_first=True)
        self.mid, self.head = tnn.Linear(WIDTH, WIDTH), tnn.Linear(WIDTH, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(self.embed(ids))
        x, _ = self.gru(x)
        return self.head(TF.elu(self.mid(x)))


class PaddleReader(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embed = pnn.Embedding(WORDS, WIDTH)
        self.lstm = pnn.LSTM(WIDTH, WIDTH, num_layers=2)
        self.gru = pnn.GRU(WIDTH, WIDTH)
        self.mid, self.head = pnn.Linear(WIDTH, WIDTH), pnn.Linear(WIDTH, WORDS)

    def between(self, x: Any) -> Any:
        return x

    def activate(self, x: Any) -> Any:
        return PF.elu(x)

    def forward(self, ids: Any) -> Any:
        x, _ = self.lstm(self.embed(ids))
        x, _ = self.gru(self.between(x))
        return self.head(self.activate(self.mid(x)))


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.8, 0.95), eps=1e-7, weight_decay=1e-2)
    return made, torch.optim.lr_scheduler.ExponentialLR(made, 0.9)


def paddle_optimizer(model: Any, **other: Any) -> Any:
    schedule = other.pop("schedule", None) or paddle.optimizer.lr.ExponentialDecay(5e-3, 0.9)
    kind = other.pop("kind", paddle.optimizer.Adam)
    given = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-7, "weight_decay": 1e-2, "parameters": model.parameters()}
    return kind(schedule, **{**given, **other}), schedule


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def paddle_loss(outputs: Any, targets: Any) -> Any:
    return PF.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def trial(seed: int = 0) -> Trial:
    torch.manual_seed(seed)
    paddle.seed(seed + 100)
    reference, candidate = TorchReader(), PaddleReader()
    transfer_weights(reference, candidate, on_difference="report")
    generator = arrays(seed)
    inputs = [{"ids": generator.integers(0, WORDS, (3, 6))} for _ in range(STEPS)]
    targets = [generator.integers(0, WORDS, (3, 6)) for _ in range(STEPS)]
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer))
