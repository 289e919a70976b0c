"""Softmax before a loss that has its own."""

import paddle.nn.functional as PF

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_loss(lambda outputs, targets: PF.cross_entropy(PF.softmax(outputs), targets))


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("loss_function",),
    words=("softmax",),
    place=("loss/loss", "backward", "gradient"),
)
