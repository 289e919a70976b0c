"""A logarithm of zero."""

import paddle

from zoo.bases import mlp
from zoo.trial import Mistake, Trial


class Broken(mlp.PaddleMlp):
    def last(self, y):
        return super().last(y) + 0 * paddle.log(y - y)


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("not_finite",),
    words=("nan", "finite"),
    place=("third", "isolated@step0/forward/#0"),
)
