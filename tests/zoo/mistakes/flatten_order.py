"""Flattened with channels last."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


class Broken(cnn.PaddleNet):
    def flat(self, x):
        return x.transpose([0, 2, 3, 1]).flatten(1)


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("another order", "permut", "transpos"),
    place=("fc1", "drop", "cnn", "isolated@step0/forward/#0"),
    quick=True,
)
