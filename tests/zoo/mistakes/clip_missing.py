"""No gradient clipping."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: cnn.paddle_optimizer(model, grad_clip=None))


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("clipping",),
    words=("no clipping",),
    place=("clip", "update"),
    quick=True,
)
