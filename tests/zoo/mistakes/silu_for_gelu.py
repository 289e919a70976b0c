"""GELU in place of SiLU."""

import paddle.nn.functional as PF

from zoo.bases import mlp
from zoo.trial import Mistake, Trial


class Broken(mlp.PaddleMlp):
    def last(self, y):
        return PF.gelu(y)


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("silu", "gelu"),
    place=("third", "isolated@step0/forward/#0"),
)
