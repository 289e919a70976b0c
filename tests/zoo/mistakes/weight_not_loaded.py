"""One layer that was not loaded."""

import numpy as np

from zoo.bases import cnn
from zoo.trial import Mistake, Trial, change_weight


def plant(trial: Trial) -> None:
    change_weight(trial.candidate.fc2.weight, lambda w: np.random.default_rng(0).normal(size=w.shape) * 0.2)


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("weights",),
    words=("not loaded",),
    place=("fc2",),
)
