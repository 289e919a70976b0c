"""Huber in place of the squared error."""

import paddle.nn.functional as PF

from zoo.bases import mlp
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_loss(lambda outputs, targets: PF.smooth_l1_loss(outputs, targets))


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("loss_function",),
    words=("another loss",),
    place=("loss/loss", "backward", "gradient"),
)
