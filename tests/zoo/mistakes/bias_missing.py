"""A bias left out."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.fc1.bias = None


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("missing_parameter",),
    words=("bias",),
    place=("fc1",),
    quick=True,
)
