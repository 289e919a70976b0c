"""The whole candidate left in eval mode."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.eval()


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("statistics", "mode"),
    words=("eval",),
    place=("bn1",),
)
