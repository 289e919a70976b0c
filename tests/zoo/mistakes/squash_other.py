"""Sigmoid in place of tanh."""

import paddle

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


class Broken(cnn.PaddleNet):
    def squash(self, x):
        return paddle.nn.functional.sigmoid(x)


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("sigmoid",),
    place=("fc2", "isolated@step0/forward/#0"),
)
