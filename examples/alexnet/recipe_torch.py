"""How AlexNet is trained in torch: loss, optimizer, schedule, accuracy."""

from __future__ import annotations

import numpy as np
import torch
from settings import Settings
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR


def build_loss() -> nn.Module:
    """Returns the cross entropy."""
    return nn.CrossEntropyLoss()


def build_optimizer(model: nn.Module, settings: Settings, *, lr: float) -> SGD:
    """Returns SGD with momentum and L2 decay."""
    return SGD(model.parameters(), lr=lr, momentum=settings.momentum, weight_decay=settings.weight_decay)


def build_scheduler(optimizer: SGD, settings: Settings) -> StepLR:
    """Returns the step schedule: the rate falls by gamma every step_size epochs."""
    return StepLR(optimizer, step_size=settings.lr_step_size, gamma=settings.lr_gamma)


def top1(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the share of pictures whose greatest logit is the label's."""
    return (logits.argmax(dim=1) == labels).float().mean()


def train_some_iterations(
    model: nn.Module, optimizer: SGD, data: np.ndarray, label: np.ndarray, *, iterations: int
) -> list[Tensor]:
    """Returns the loss of each iteration on the same data; the model stays in the mode it came in."""
    criterion = build_loss()
    image = torch.from_numpy(data).to(next(model.parameters()).dtype)
    target = torch.from_numpy(label)
    losses = []
    for _ in range(iterations):
        loss = criterion(model(image), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses
