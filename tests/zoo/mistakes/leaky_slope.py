"""Another slope of LeakyReLU."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.act2._negative_slope = 0.01


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("layer_setting",),
    words=("negative_slope",),
    place=("act2",),
    quick=True,
)
