"""Layer norm epsilon 1e-5 in place of 1e-12."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.layers[1].norm1._epsilon = 1e-5


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("layer_setting",),
    words=("eps",),
    place=("layers.1.norm1",),
)
