"""A bias that was never loaded and is zero."""

from zoo.bases import mlp
from zoo.trial import Mistake, Trial, change_weight


def plant(trial: Trial) -> None:
    change_weight(trial.candidate.body.bias, lambda w: w * 0)


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("weights",),
    words=("zero",),
    place=("second",),
)
