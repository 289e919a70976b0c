"""A denoiser of images that are noised in the loop, Adam by hand, one cycle of rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from zoo.trial import Trial, arrays, with_weights

STEPS, WIDTH, TIMES = 4, 8, 20
KEPT = np.cumprod(1 - np.linspace(1e-3, 0.2, TIMES)).astype(np.float64)


class TorchDenoiser(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time1, self.time2 = tnn.Linear(WIDTH, WIDTH), tnn.Linear(WIDTH, WIDTH)
        self.conv1, self.norm1 = tnn.Conv2d(2, WIDTH, 3, padding=1), tnn.GroupNorm(2, WIDTH)
        self.down, self.norm2 = tnn.Conv2d(WIDTH, WIDTH, 3, 2, 1), tnn.GroupNorm(2, WIDTH)
        self.mid, self.last = tnn.Conv2d(WIDTH, WIDTH, 3, padding=1), tnn.Conv2d(2 * WIDTH, 2, 3, padding=1)

    def forward(self, image: Any, time: Any) -> Any:
        powers = torch.exp(-math.log(100.0) * torch.arange(WIDTH // 2, dtype=image.dtype) / (WIDTH // 2))
        angles = time.to(image.dtype)[:, None] * powers
        time = self.time2(TF.silu(self.time1(torch.cat([angles.sin(), angles.cos()], -1))))
        x = TF.silu(self.norm1(self.conv1(image)))
        y = self.down(x) + time[:, :, None, None]
        y = TF.interpolate(TF.silu(self.mid(TF.silu(self.norm2(y)))), scale_factor=2, mode="nearest")
        return self.last(torch.cat([x, y], 1))


class PaddleDenoiser(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.time1 = pnn.Linear(WIDTH, WIDTH)
        self.time2 = pnn.Linear(WIDTH, WIDTH)
        self.conv1 = pnn.Conv2D(2, WIDTH, 3, padding=1)
        self.norm1 = pnn.GroupNorm(2, WIDTH)
        self.down = pnn.Conv2D(WIDTH, WIDTH, 3, 2, 1)
        self.norm2 = pnn.GroupNorm(2, WIDTH)
        self.mid = pnn.Conv2D(WIDTH, WIDTH, 3, padding=1)
        self.last = pnn.Conv2D(2 * WIDTH, 2, 3, padding=1)

    def forward(self, image: Any, time: Any) -> Any:
        steps = paddle.arange(WIDTH // 2).astype(image.dtype)
        powers = paddle.exp(-math.log(100.0) * steps / (WIDTH // 2))
        angles = time.astype(image.dtype).unsqueeze(-1) * powers
        waves = paddle.concat([angles.sin(), angles.cos()], -1)
        time = self.time2(PF.silu(self.time1(waves)))
        x = PF.silu(self.norm1(self.conv1(image)))
        y = self.down(x) + time.unsqueeze([-1, -2])
        y = PF.silu(self.mid(PF.silu(self.norm2(y))))
        y = PF.interpolate(y, scale_factor=2, mode="nearest")
        both = paddle.concat([x, y], 1)
        return self.last(both)


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    kept = torch.as_tensor(KEPT, dtype=inputs["clean"].dtype)[inputs["time"]][:, None, None, None]
    noised = kept.sqrt() * inputs["clean"] + (1 - kept).sqrt() * inputs["noise"]
    TF.mse_loss(model(noised, inputs["time"]), inputs["noise"]).backward()
    optimizer.step()
    optimizer.zero_grad()


def paddle_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    clean, noise, time = inputs["clean"], inputs["noise"], inputs["time"]
    kept = paddle.to_tensor(KEPT).astype(clean.dtype)[time].reshape([-1, 1, 1, 1])
    noised = kept.sqrt() * clean + (1 - kept).sqrt() * noise
    made = model(noised, time)
    PF.mse_loss(made, noise).backward()
    optimizer.step()
    optimizer.clear_grad()


class TorchAdam(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-2})
        self.moments: dict[Any, Any] = {}
        self.count = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.count += 1
        for group in self.param_groups:
            for one in group["params"]:
                first, second = self.moments.setdefault(one, (torch.zeros_like(one), torch.zeros_like(one)))
                first.mul_(0.9).add_(0.1 * one.grad)
                second.mul_(0.99).add_(0.01 * one.grad**2)
                spread = (second / (1 - 0.99**self.count)).sqrt() + 1e-5
                one.mul_(1 - group["lr"] * 0.05).sub_(group["lr"] * first / (1 - 0.9**self.count) / spread)


def torch_optimizer(model: Any) -> Any:
    made = TorchAdam(model.parameters())
    cycle = {"total_steps": 8, "pct_start": 0.25, "anneal_strategy": "linear", "cycle_momentum": False}
    return made, torch.optim.lr_scheduler.OneCycleLR(made, 1e-2, **cycle)


def paddle_rate(step: int) -> float:
    low, top, end, turn = 0.04, 1.0, 4e-6, 1.0
    if step <= turn:
        return low + (top - low) * step / turn
    return top + (end - top) * (step - turn) / 6.0


class HandMadeAdam(paddle.optimizer.SGD):
    """Adam with decoupled decay, written out."""

    def __init__(self, schedule: Any, parameters: Any) -> None:
        super().__init__(schedule, parameters=parameters)
        self.moments: dict[str, Any] = {}
        self.count = 0

    @paddle.no_grad()
    def step(self) -> None:
        self.count += 1
        rate = self.get_lr()
        for one in (one for one in self._parameter_list if one.grad is not None):
            gradient = one.grad
            first, second = self.moments.get(one.name, (gradient * 0, gradient * 0))
            first = 0.9 * first + 0.1 * gradient
            second = 0.99 * second + 0.01 * gradient * gradient
            self.moments[one.name] = first, second
            mean = first / (1 - 0.9**self.count)
            spread = (second / (1 - 0.99**self.count)).sqrt() + 1e-5
            one.set_value(one * (1 - rate * 0.05) - rate * mean / spread)


def paddle_optimizer(model: Any) -> Any:
    schedule = paddle.optimizer.lr.LambdaDecay(1e-2, paddle_rate)
    return HandMadeAdam(schedule, model.parameters()), schedule


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchDenoiser, PaddleDenoiser, seed)
    generator = arrays(seed)
    inputs = [
        {
            "clean": generator.normal(size=(3, 2, 6, 6)).astype(np.float32),
            "noise": generator.normal(size=(3, 2, 6, 6)).astype(np.float32),
            "time": generator.integers(0, TIMES, 3),
        }
        for _ in range(STEPS)
    ]
    return Trial(
        reference, candidate, inputs, None, optimizer=(torch_optimizer, paddle_optimizer),
        step=(torch_step, paddle_step),
    )  # fmt: skip
