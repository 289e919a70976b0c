"""One weight went through float16."""

import numpy as np

from zoo.bases import lstm
from zoo.trial import Mistake, Trial, change_weight


def plant(trial: Trial) -> None:
    change_weight(trial.candidate.mid.weight, lambda w: w.astype(np.float16))


MISTAKE = Mistake(
    lstm.trial,
    plant,
    rules=("weights",),
    words=("float16",),
    place=("mid",),
)
