"""How MVF is trained and judged in torch: loss, optimizer, the two accuracies."""

from __future__ import annotations

import torch
from settings import Settings
from torch import Tensor, nn
from torch.optim import SGD


def build_loss() -> nn.Module:
    """Returns the cross entropy."""
    return nn.CrossEntropyLoss()


def build_optimizer(model: nn.Module, settings: Settings, *, weight_decay: float) -> SGD:
    """Returns SGD with momentum and L2 decay."""
    return SGD(model.parameters(), lr=settings.lr, momentum=settings.momentum, weight_decay=weight_decay)


def top1_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the share of clips whose greatest logit is the label's."""
    return (logits.argmax(dim=1) == labels).double().mean()


def mean_class_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean over the classes that occur of the share of their clips that are named right."""
    hits = labels[logits.argmax(dim=1) == labels]
    classes = logits.shape[1]
    right, all_clips = torch.bincount(hits, minlength=classes), torch.bincount(labels, minlength=classes)
    occurs = all_clips > 0
    return (right[occurs].double() / all_clips[occurs].double()).mean()


def train_some_iterations(
    model: nn.Module, optimizer: SGD, clips: Tensor, labels: Tensor, *, iterations: int
) -> list[Tensor]:
    """Returns the loss of each iteration on the same clips; the model stays in the mode it came in."""
    criterion = build_loss()
    losses = []
    for _ in range(iterations):
        loss = criterion(model(clips), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses
