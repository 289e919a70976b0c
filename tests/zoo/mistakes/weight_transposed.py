"""A square weight that was not transposed."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial, change_weight


def plant(trial: Trial) -> None:
    change_weight(trial.candidate.square.weight, lambda w: w.T)


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("weights",),
    words=("transposed",),
    place=("square",),
    quick=True,
)
