"""How FNet is trained in paddle: optimizer, schedules, and the iterations of the backward check."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.optimizer import AdamW
from paddle.optimizer.lr import LambdaDecay
from settings import Settings, takes_decay


def build_optimizer(model: nn.Layer, settings: Settings) -> AdamW:
    """Returns AdamW with decay on the weights, not on biases and normalisations."""
    # paddle asks by its own automatic parameter names (linear_0.w_0), not by the model's.
    decaying = {parameter.name for name, parameter in model.named_parameters() if takes_decay(name)}
    beta1, beta2 = settings.betas
    return AdamW(
        learning_rate=settings.lr,
        beta1=beta1,
        beta2=beta2,
        epsilon=settings.eps,
        parameters=model.parameters(),
        weight_decay=settings.weight_decay,
        apply_decay_param_fun=lambda name: name in decaying,
    )


def build_scheduler(schedule: str, settings: Settings, *, num_cycles: float) -> LambdaDecay:
    """Returns the schedule of the given name: linear, cosine or polynomial, each after a linear warm-up."""
    decays: dict[str, Callable[[int], float]] = {
        "linear": lambda step: _linear(step, settings),
        "cosine": lambda step: _cosine(step, settings, num_cycles),
        "polynomial": lambda step: _polynomial(step, settings),
    }
    decay = decays[schedule]

    def factor(step: int) -> float:
        return step / settings.warmup_steps if step < settings.warmup_steps else decay(step)

    return LambdaDecay(settings.lr, factor)


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
    model: nn.Layer, optimizer: AdamW, ids: np.ndarray, labels: np.ndarray, *, iterations: int
) -> list[Tensor]:
    """Returns the loss of each iteration on the same data; the model stays in the mode it came in."""
    criterion = nn.CrossEntropyLoss()
    tokens, target = paddle.to_tensor(ids), paddle.to_tensor(labels)
    losses = []
    for _ in range(iterations):
        loss = criterion(model(tokens), target)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.detach())
    return losses
