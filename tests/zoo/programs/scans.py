"""A selective state space: a scan whose steps depend on its input; LAMB by hand on both sides."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from zoo.trial import Trial, arrays, with_weights

STEPS, WIDTH, STATES, LENGTH, WORDS = 3, 6, 4, 5, 13


class TorchScan(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = tnn.Embedding(WORDS, WIDTH), tnn.LayerNorm(WIDTH)
        self.enter, self.conv = tnn.Linear(WIDTH, 2 * WIDTH), tnn.Conv1d(WIDTH, WIDTH, 3, groups=WIDTH)
        self.choose, self.step = tnn.Linear(WIDTH, 2 * STATES), tnn.Linear(WIDTH, WIDTH)
        self.logs, self.direct = tnn.Parameter(torch.zeros(WIDTH, STATES)), tnn.Parameter(torch.ones(WIDTH))
        self.leave, self.head = tnn.Linear(WIDTH, WIDTH), tnn.Linear(WIDTH, WORDS)

    def forward(self, ids: Any) -> Any:
        given = self.words(ids)
        x, gate = self.enter(self.norm(given)).chunk(2, -1)
        x = TF.silu(self.conv(TF.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2))
        written, read = self.choose(x).chunk(2, -1)
        size = TF.softplus(self.step(x))
        keep = torch.exp(-size[..., None] * self.logs.exp())
        add = size[..., None] * written[:, :, None] * x[..., None]
        state, made = torch.zeros_like(add[:, 0]), []
        for time in range(LENGTH):
            state = keep[:, time] * state + add[:, time]
            made.append((state * read[:, time, None]).sum(-1))
        y = torch.stack(made, 1) + self.direct * x
        return self.head(given + self.leave(y * TF.silu(gate)))


class PaddleScan(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = pnn.Embedding(WORDS, WIDTH), pnn.LayerNorm(WIDTH)
        self.enter, self.conv = pnn.Linear(WIDTH, 2 * WIDTH), pnn.Conv1D(WIDTH, WIDTH, 3, groups=WIDTH)
        self.choose, self.step = pnn.Linear(WIDTH, 2 * STATES), pnn.Linear(WIDTH, WIDTH)
        self.logs, self.direct = self.create_parameter([WIDTH, STATES]), self.create_parameter([WIDTH])
        self.leave, self.head = pnn.Linear(WIDTH, WIDTH), pnn.Linear(WIDTH, WORDS)

    def forward(self, ids: Any) -> Any:
        given = self.words(ids)
        x, gate = self.enter(self.norm(given)).chunk(2, -1)
        x = PF.pad(x.transpose([0, 2, 1]), [2, 0], data_format="NCL")
        x = PF.silu(self.conv(x).transpose([0, 2, 1]))
        written, read = self.choose(x).chunk(2, -1)
        size = PF.softplus(self.step(x))
        rate = self.logs.exp()
        keep = paddle.exp(-size.unsqueeze(-1) * rate)
        add = size.unsqueeze(-1) * written.unsqueeze(2) * x.unsqueeze(-1)
        state, made = paddle.zeros_like(add[:, 0]), []
        for time in range(LENGTH):
            state = keep[:, time] * state + add[:, time]
            made.append((state * read[:, time].unsqueeze(1)).sum(-1))
        y = paddle.stack(made, 1)
        y = y + self.direct * x
        y = y * PF.silu(gate)
        return self.head(given + self.leave(y))


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").reshape(3, -1).sum(1).mean()


def paddle_loss(outputs: Any, targets: Any) -> Any:
    each = PF.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
    return each.reshape([3, -1]).sum(1).mean()


class TorchLamb(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-2})
        self.kept: dict[Any, Any] = {}
        self.count = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.count += 1
        for one in self.param_groups[0]["params"]:
            first, second = self.kept.get(one, (torch.zeros_like(one), torch.zeros_like(one)))
            first, second = 0.9 * first + 0.1 * one.grad, 0.99 * second + 0.01 * one.grad**2
            self.kept[one] = first, second
            way = first / (1 - 0.9**self.count) / ((second / (1 - 0.99**self.count)).sqrt() + 1e-6) + 0.05 * one
            one.sub_(self.param_groups[0]["lr"] * one.norm() / way.norm() * way)


class PaddleLamb(paddle.optimizer.SGD):
    def __init__(self, parameters: Any) -> None:
        super().__init__(1e-2, parameters=parameters)
        self.kept: dict[str, Any] = {}
        self.count = 0

    @paddle.no_grad()
    def step(self) -> None:
        self.count += 1
        for one in self._parameter_list:
            first, second = self.kept.get(one.name, (one.grad * 0, one.grad * 0))
            first = 0.9 * first + 0.1 * one.grad
            second = 0.99 * second + 0.01 * one.grad**2
            self.kept[one.name] = first, second
            spread = (second / (1 - 0.99**self.count)).sqrt() + 1e-6
            way = first / (1 - 0.9**self.count) / spread
            way = way + 0.05 * one
            trust = one.norm() / way.norm()
            one.set_value(one - self.get_lr() * trust * way)


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchScan, PaddleScan, seed)
    some = arrays(seed)
    inputs = [{"ids": some.integers(0, WORDS, (3, LENGTH))} for _ in range(STEPS)]
    targets = [some.integers(0, WORDS, (3, LENGTH)) for _ in range(STEPS)]
    optimizers = (lambda model: TorchLamb(model.parameters()), lambda model: PaddleLamb(model.parameters()))
    return Trial(reference, candidate, inputs, targets, (torch_loss, paddle_loss), optimizers)
