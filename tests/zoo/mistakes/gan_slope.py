"""Another slope in the discriminator."""

from zoo.bases import gan
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate["discriminator"][1]._negative_slope = 0.1


MISTAKE = Mistake(
    gan.trial,
    plant,
    rules=("layer_setting",),
    words=("negative_slope",),
    place=("discriminator",),
)
