"""Another step size."""

import paddle

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(
        lambda model: cnn.paddle_optimizer(model, schedule=paddle.optimizer.lr.StepDecay(0.1, 1, 0.5))
    )


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("learning_rate",),
    words=("times shorter", "milestone", "stepped"),
    place=("/lr/",),
)
