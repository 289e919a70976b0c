"""The scheduler is never stepped."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: cnn.paddle_optimizer(model)[0])


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("learning_rate",),
    words=("never stepped",),
    place=("/lr/",),
)
