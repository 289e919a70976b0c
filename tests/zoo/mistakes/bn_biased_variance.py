"""Running variance with the divisor N (paddle as it comes)."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    for layer in (trial.candidate.bn1, trial.candidate.bn2):
        layer._forward_post_hooks.clear()


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("statistics",),
    words=("biased",),
    place=("bn1.running_var",),
    quick=True,
)
