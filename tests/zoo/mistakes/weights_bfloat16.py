"""All weights went through bfloat16."""

import ml_dtypes
import numpy as np

from zoo.bases import unet
from zoo.trial import Mistake, Trial, change_weight


def plant(trial: Trial) -> None:
    for parameter in trial.candidate.parameters():
        change_weight(parameter, lambda w: w.astype(ml_dtypes.bfloat16).astype(np.float32))


MISTAKE = Mistake(
    unet.trial,
    plant,
    rules=("weights",),
    words=("bfloat16",),
    place=("stem",),
)
