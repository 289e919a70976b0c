"""Batch norm with another epsilon."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.bn1._epsilon = 1e-3


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("layer_setting",),
    words=("eps",),
    place=("bn1",),
    quick=True,
)
