"""A kernel flipped in space."""

from zoo.bases import unet
from zoo.trial import Mistake, Trial, change_weight


def plant(trial: Trial) -> None:
    change_weight(trial.candidate.fuse.weight, lambda w: w[:, :, ::-1, ::-1])


MISTAKE = Mistake(
    unet.trial,
    plant,
    rules=("weights",),
    words=("flipped",),
    place=("fuse",),
)
