"""Dropout without upscaling in training."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.drop.mode = "downscale_in_infer"


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("layer_setting", "constant_factor"),
    words=("mode", "times"),
    place=("drop",),
)
