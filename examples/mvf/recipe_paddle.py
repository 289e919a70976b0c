"""How MVF is trained and judged in paddle: loss, optimizer, the two accuracies."""

from __future__ import annotations

import paddle
from paddle import Tensor, nn
from paddle.optimizer import Momentum
from settings import Settings


def build_loss() -> nn.Layer:
    """Returns the cross entropy."""
    return nn.CrossEntropyLoss()


def build_optimizer(model: nn.Layer, settings: Settings, *, weight_decay: float) -> Momentum:
    """Returns SGD with momentum and L2 decay; paddle's own `SGD` has no momentum."""
    return Momentum(
        learning_rate=settings.lr,
        momentum=settings.momentum,
        parameters=model.parameters(),
        weight_decay=weight_decay,
    )


def top1_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the share of clips whose greatest logit is the label's."""
    return (logits.argmax(axis=1) == labels).astype("float64").mean()


def mean_class_accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean over the classes that occur of the share of their clips that are named right."""
    named = paddle.nn.functional.one_hot(logits.argmax(axis=1), logits.shape[1])
    truth = paddle.nn.functional.one_hot(labels, logits.shape[1])
    right, all_clips = (named * truth).sum(axis=0), truth.sum(axis=0)
    occurs = all_clips > 0
    return (right[occurs].astype("float64") / all_clips[occurs].astype("float64")).mean()


def train_some_iterations(
    model: nn.Layer, optimizer: Momentum, clips: Tensor, labels: Tensor, *, iterations: int
) -> list[Tensor]:
    """Returns the loss of each iteration on the same clips; the model stays in the mode it came in."""
    criterion = build_loss()
    losses = []
    for _ in range(iterations):
        loss = criterion(model(clips), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.detach())
    return losses
