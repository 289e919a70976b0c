"""Batch norm with torch's momentum number copied."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.bn2._momentum = 0.1


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("layer_setting", "statistics"),
    words=("momentum", "share"),
    place=("bn2",),
    quick=True,
)
