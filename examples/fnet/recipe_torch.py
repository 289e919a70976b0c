"""How FNet is trained in torch: optimizers, schedules, and the iterations of the backward check."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from legacy_adamw import LegacyAdamW
from settings import Settings, takes_decay
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR


def build_optimizer(model: nn.Module, settings: Settings, *, legacy: bool = False) -> Optimizer:
    """Returns AdamW with two groups: weights with decay, biases and normalisations without."""
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if takes_decay(name)], "weight_decay": settings.weight_decay},
        {"params": [p for name, p in named if not takes_decay(name)], "weight_decay": 0.0},
    ]
    kind = LegacyAdamW if legacy else AdamW
    return kind(groups, lr=settings.lr, betas=settings.betas, eps=settings.eps)


def build_scheduler(optimizer: Optimizer, schedule: str, settings: Settings, *, num_cycles: float) -> LambdaLR:
    """Returns the schedule of the given name: linear, cosine or polynomial, each after a linear warm-up."""
    decays: dict[str, Callable[[int], float]] = {
        "linear": lambda step: _linear(step, settings),
        "cosine": lambda step: _cosine(step, settings, num_cycles),
        "polynomial": lambda step: _polynomial(step, settings),
    }
    decay = decays[schedule]

    def factor(step: int) -> float:
        return step / settings.warmup_steps if step < settings.warmup_steps else decay(step)

    return LambdaLR(optimizer, factor)


# The formulas stand in both recipes and are not shared: a shared one would be compared with itself.


def _linear(step: int, settings: Settings) -> float:
    return max(0.0, (settings.total_steps - step) / (settings.total_steps - settings.warmup_steps))


def _cosine(step: int, settings: Settings, num_cycles: float) -> float:
    progress = (step - settings.warmup_steps) / (settings.total_steps - settings.warmup_steps)
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * num_cycles * 2.0 * progress)))


def _polynomial(step: int, settings: Settings) -> float:
    if step > settings.total_steps:
        return settings.end_lr / settings.lr
    left = 1 - (step - settings.warmup_steps) / (settings.total_steps - settings.warmup_steps)
    return ((settings.lr - settings.end_lr) * left**settings.power + settings.end_lr) / settings.lr


def train_some_iterations(
    model: nn.Module, optimizer: Optimizer, ids: np.ndarray, labels: np.ndarray, *, iterations: int
) -> list[Tensor]:
    """Returns the loss of each iteration on the same data; the model stays in the mode it came in."""
    criterion = nn.CrossEntropyLoss()
    tokens, target = torch.from_numpy(ids), torch.from_numpy(labels)
    losses = []
    for _ in range(iterations):
        loss = criterion(model(tokens), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses
