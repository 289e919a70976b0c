"""A hard sigmoid in place of a sigmoid."""

import paddle.nn.functional as PF

from zoo.bases import mlp
from zoo.trial import Mistake, Trial


class Broken(mlp.PaddleMlp):
    def gate(self, y):
        return PF.hardsigmoid(y)


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("sigmoid",),
    place=("third", "isolated@step0/forward/#0"),
)
