"""Another gamma."""

import paddle

from zoo.bases import lstm
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(
        lambda model: lstm.paddle_optimizer(model, schedule=paddle.optimizer.lr.ExponentialDecay(5e-3, 0.8))
    )


MISTAKE = Mistake(
    lstm.trial,
    plant,
    rules=("learning_rate",),
    words=("gamma",),
    place=("/lr/",),
)
