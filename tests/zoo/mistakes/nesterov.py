"""Nesterov momentum."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: cnn.paddle_optimizer(model, use_nesterov=True))


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("optimizer_setting",),
    words=("nesterov",),
    place=("update", "optimizer/", "parameter"),
)
