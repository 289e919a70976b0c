"""Another warm-up."""

import paddle

from zoo.bases import bert
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(
        lambda model: bert.paddle_optimizer(
            model,
            schedule=paddle.optimizer.lr.LambdaDecay(1e-2, lambda step: min((step + 1) / 2, 1.0) * (1 - step / 20)),
        )
    )


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("learning_rate",),
    words=("warm-up",),
    place=("/lr/",),
)
