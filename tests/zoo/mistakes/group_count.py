"""Group norm with other groups."""

from zoo.bases import unet
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.norm2._num_groups = 2


MISTAKE = Mistake(
    unet.trial,
    plant,
    rules=("layer_setting",),
    words=("num_groups",),
    place=("norm2",),
)
