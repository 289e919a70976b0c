"""ReLU in place of ELU."""

import paddle.nn.functional as PF

from zoo.bases import lstm
from zoo.trial import Mistake, Trial


class Broken(lstm.PaddleReader):
    def activate(self, x):
        return PF.relu(x)


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    lstm.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("relu",),
    place=("head", "isolated@step0/forward/#0"),
)
