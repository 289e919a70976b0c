"""Gates of the LSTM in another order."""

import numpy as np

from zoo.bases import lstm
from zoo.trial import Mistake, Trial, change_weight


def plant(trial: Trial) -> None:
    change_weight(trial.candidate.lstm[0].cell.weight_ih, lambda w: np.concatenate([w[12:24], w[:12], w[24:]]))


MISTAKE = Mistake(
    lstm.trial,
    plant,
    rules=("weights",),
    words=("permuted",),
    place=("lstm",),
)
