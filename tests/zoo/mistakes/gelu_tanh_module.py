"""GELU by its tanh approximation."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.gelu._approximate = True


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("layer_setting",),
    words=("approximate",),
    place=("gelu",),
)
