"""Squared errors summed over the outputs."""

import paddle.nn.functional as PF

from zoo.bases import mlp
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_loss(lambda outputs, targets: PF.mse_loss(outputs, targets, reduction="sum"))


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("loss_scale",),
    words=("sum",),
    place=("loss/loss", "backward", "gradient"),
)
