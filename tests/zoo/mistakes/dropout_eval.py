"""Dropout left in eval mode."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.drop.eval()


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("mode",),
    words=("dropout", "eval"),
    place=("drop",),
)
