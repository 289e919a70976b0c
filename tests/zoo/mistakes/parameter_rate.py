"""A layer with a learning rate of its own."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.conv2.weight.optimize_attr["learning_rate"] = 0.1


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("update_fit",),
    words=("learning rate of",),
    place=("update", "optimizer/", "parameter"),
)
