"""A policy and its value: clipped ratios, advantages, entropy; two optimizers' settings in one, linear rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
from paddle import nn as pnn
from torch import nn as tnn

from zoo.trial import Trial, arrays, with_weights

STEPS, WIDTH, ACTIONS = 4, 10, 4


class TorchPolicy(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = tnn.LayerNorm(6), tnn.Linear(6, WIDTH), tnn.Linear(WIDTH, WIDTH)
        self.actor, self.critic = tnn.Linear(WIDTH, ACTIONS), tnn.Linear(WIDTH, 1)

    def forward(self, seen: Any) -> Any:
        x = torch.tanh(self.second(torch.tanh(self.first(self.norm(seen)))))
        return self.actor(x).log_softmax(-1), self.critic(x).squeeze(-1)


class PaddlePolicy(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = pnn.LayerNorm(6), pnn.Linear(6, WIDTH), pnn.Linear(WIDTH, WIDTH)
        self.actor, self.critic = pnn.Linear(WIDTH, ACTIONS), pnn.Linear(WIDTH, 1)

    def forward(self, seen: Any) -> Any:
        x = self.norm(seen)
        x = paddle.tanh(self.first(x))
        x = paddle.tanh(self.second(x))
        return PF.log_softmax(self.actor(x), -1), self.critic(x).squeeze(-1)


def torch_loss(outputs: Any, targets: Any) -> Any:
    logs, value = outputs
    chosen = logs.gather(1, targets["action"][:, None])[:, 0]
    gain = targets["gain"]
    gain = (gain - gain.mean()) / (gain.std() + 1e-4)
    ratio = (chosen - targets["old"]).exp()
    policy = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
    entropy = -(logs.exp() * logs).sum(-1).mean()
    return policy + 0.5 * (value - targets["reward"]).pow(2).mean() - 0.01 * entropy


def paddle_loss(outputs: Any, targets: Any) -> Any:
    logs, value = outputs
    chosen = paddle.take_along_axis(logs, targets["action"].unsqueeze(1), 1)[:, 0]
    gain = targets["gain"]
    gain = (gain - gain.mean()) / (gain.std() + 1e-4)
    ratio = (chosen - targets["old"]).exp()
    kept = ratio.clip(0.8, 1.2) * gain
    policy = -paddle.minimum(ratio * gain, kept).mean()
    entropy = -(logs.exp() * logs).sum(-1).mean()
    wrong = (value - targets["reward"]).pow(2).mean()
    return policy + 0.5 * wrong - 0.01 * entropy


def torch_optimizer(model: Any) -> Any:
    made = torch.optim.Adam(model.parameters(), 1e-2, eps=1e-5)
    return made, torch.optim.lr_scheduler.LinearLR(made, 1.0, 0.0, total_iters=8)


def paddle_optimizer(model: Any) -> Any:
    rates = paddle.optimizer.lr.PolynomialDecay(1e-2, 8, end_lr=0.0, power=1.0)
    made = paddle.optimizer.Adam(
        rates,
        epsilon=1e-5,
        parameters=model.parameters(),
        grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5),
    )
    return made, rates


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    torch_loss(model(**inputs), targets).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()


def paddle_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    loss = paddle_loss(model(**inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchPolicy, PaddlePolicy, seed)
    some = arrays(seed)
    inputs = [{"seen": some.normal(size=(10, 6)).astype(np.float32)} for _ in range(STEPS)]
    targets = [
        {
            "action": some.integers(0, ACTIONS, 10),
            "old": some.uniform(-2.2, -0.5, 10).astype(np.float32),
            "gain": some.normal(size=10).astype(np.float32),
            "reward": some.normal(size=10).astype(np.float32),
        }
        for _ in range(STEPS)
    ]
    return Trial(
        reference, candidate, inputs, targets,
        optimizer=(torch_optimizer, paddle_optimizer), step=(torch_step, paddle_step),
    )  # fmt: skip
