"""Each tensor clipped by itself."""

import paddle

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(
        lambda model: cnn.paddle_optimizer(model, grad_clip=paddle.nn.ClipGradByNorm(0.8))
    )


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("clipping",),
    words=("per tensor",),
    place=("clip",),
)
