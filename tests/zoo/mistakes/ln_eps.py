"""Layer norm with another epsilon."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.norm._epsilon = 1e-3


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("layer_setting",),
    words=("eps",),
    place=("norm",),
)
