"""Clipped at another norm."""

import paddle

from zoo.bases import bert
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(
        lambda model: bert.paddle_optimizer(model, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.25))
    )


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("clipping",),
    words=("global norm",),
    place=("clip",),
)
