"""Elements clipped by value."""

import paddle

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(
        lambda model: cnn.paddle_optimizer(model, grad_clip=paddle.nn.ClipGradByValue(0.05))
    )


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("clipping",),
    words=("by value",),
    place=("clip",),
)
