"""A cosine that ends higher."""

import paddle

from zoo.bases import mlp
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(
        lambda model: mlp.paddle_optimizer(
            model, schedule=paddle.optimizer.lr.CosineAnnealingDecay(0.5, 12, eta_min=0.05)
        )
    )


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("learning_rate",),
    words=("higher",),
    place=("/lr/",),
)
