"""Twice the learning rate."""

import paddle

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(
        lambda model: cnn.paddle_optimizer(model, schedule=paddle.optimizer.lr.StepDecay(0.2, 2, 0.5))
    )


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("learning_rate",),
    words=("2 times",),
    place=("/lr/",),
    quick=True,
)
