"""How AlexNet is trained in paddle: loss, optimizer, schedule, accuracy."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.optimizer import Momentum
from paddle.optimizer.lr import LRScheduler, StepDecay
from settings import Settings


def build_loss() -> nn.Layer:
    """Returns the cross entropy."""
    return nn.CrossEntropyLoss()


def build_optimizer(model: nn.Layer, settings: Settings, *, lr: float | LRScheduler) -> Momentum:
    """Returns SGD with momentum and L2 decay; paddle's own `SGD` has no momentum."""
    return Momentum(
        learning_rate=lr,
        momentum=settings.momentum,
        parameters=model.parameters(),
        weight_decay=settings.weight_decay,
    )


def build_scheduler(settings: Settings) -> StepDecay:
    """Returns the step schedule; in paddle it is made first and given to the optimizer as its rate."""
    return StepDecay(settings.lr_start, step_size=settings.lr_step_size, gamma=settings.lr_gamma)


def top1(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the share of pictures whose greatest logit is the label's."""
    return (logits.argmax(axis=1) == labels).astype("float32").mean()


def train_some_iterations(
    model: nn.Layer, optimizer: Momentum, data: np.ndarray, label: np.ndarray, *, iterations: int
) -> list[Tensor]:
    """Returns the loss of each iteration on the same data; the model stays in the mode it came in."""
    criterion = build_loss()
    image = paddle.to_tensor(data).astype(model.parameters()[0].dtype)
    target = paddle.to_tensor(label)
    losses = []
    for _ in range(iterations):
        loss = criterion(model(image), target)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.detach())
    return losses
