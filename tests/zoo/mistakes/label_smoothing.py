"""Label smoothing on one side."""

import paddle.nn.functional as PF

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_loss(lambda outputs, targets: PF.cross_entropy(outputs, targets, label_smoothing=0.1))


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("loss_function",),
    words=("smoothing",),
    place=("loss/loss", "backward", "gradient"),
)
