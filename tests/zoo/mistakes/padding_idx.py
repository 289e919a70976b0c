"""An embedding that trains its padding row."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.words._padding_idx = -1


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("layer_setting",),
    words=("padding_idx",),
    place=("words",),
)
