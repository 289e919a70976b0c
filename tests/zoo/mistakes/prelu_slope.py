"""PReLU's slope not loaded."""

from zoo.bases import unet
from zoo.trial import Mistake, Trial, change_weight


def plant(trial: Trial) -> None:
    change_weight(trial.candidate.prelu._weight, lambda w: w * 0 + 0.1)


MISTAKE = Mistake(
    unet.trial,
    plant,
    rules=("weights",),
    words=("multiplied", "not loaded"),
    place=("prelu",),
)
