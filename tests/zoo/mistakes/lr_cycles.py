"""A cosine of half the length."""

import paddle

from zoo.bases import mlp
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(
        lambda model: mlp.paddle_optimizer(model, schedule=paddle.optimizer.lr.CosineAnnealingDecay(0.5, 6))
    )


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("learning_rate",),
    words=("times shorter", "cycles"),
    place=("/lr/",),
)
