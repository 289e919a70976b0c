"""Another dropout rate."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.drop.p = 0.5


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("layer_setting",),
    words=("p of drop",),
    place=("drop",),
)
