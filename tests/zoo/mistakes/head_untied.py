"""Two layers that share their weight in the reference, and do not in the port."""

from dataclasses import replace

import paddle
import torch

from reprod_log.transfer import transfer_weights
from zoo.bases import mlp
from zoo.trial import Mistake, Trial


class Shared(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(size, size), torch.nn.Linear(size, size)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


class Apart(paddle.nn.Layer):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = paddle.nn.Linear(size, size), paddle.nn.Linear(size, size)

    def forward(self, x):
        return self.second(paddle.tanh(self.first(x)))


def plant(trial: Trial) -> Trial:
    size = trial.inputs[0]["x"].shape[-1]
    ours, theirs = Shared(size), Apart(size)
    transfer_weights(ours, theirs)
    theirs.second.weight.set_value(theirs.first.weight.numpy())
    losses = (lambda out, _: (out * out).mean(), lambda out, _: (out * out).mean())
    return replace(trial, reference=ours, candidate=theirs, loss=losses)


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("tied_weights",),
    words=("first.weight in place of second.weight",),
    place=("first.weight", "second.weight"),
)
