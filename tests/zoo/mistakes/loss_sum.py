"""A sum in place of a mean."""

import paddle.nn.functional as PF

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_loss(lambda outputs, targets: PF.cross_entropy(outputs, targets, reduction="sum"))


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("loss_scale",),
    words=("sum",),
    place=("loss/loss", "backward", "gradient"),
    quick=True,
)
