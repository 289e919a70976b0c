"""Batch norm on global statistics."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.bn1._use_global_stats = True


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("layer_setting", "statistics"),
    words=("use_global_stats", "frozen"),
    place=("bn1",),
)
