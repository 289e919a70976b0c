"""An embedding multiplied by sqrt(width)."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial, change_weight


def plant(trial: Trial) -> None:
    change_weight(trial.candidate.places.weight, lambda w: w * 4.0)


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("weights",),
    words=("multiplied",),
    place=("places",),
)
