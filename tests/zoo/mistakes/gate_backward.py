"""A gate whose backward pass is written by hand, and forgets a factor."""

import paddle
import paddle.nn.functional as PF

from zoo.bases import mlp
from zoo.trial import Mistake, Trial


class Gate(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        y = PF.sigmoid(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensor()
        return grad * y


class Broken(mlp.PaddleMlp):
    def gate(self, y):
        return Gate.apply(y)


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("wrong_backward",),
    words=("gate, gate_backward.py",),
    place=("backward", "gradient"),
)
