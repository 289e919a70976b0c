"""Another beta1."""

from zoo.bases import lstm
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: lstm.paddle_optimizer(model, beta1=0.9))


MISTAKE = Mistake(
    lstm.trial,
    plant,
    rules=("optimizer_setting",),
    words=("beta1",),
    place=("update", "optimizer/", "parameter"),
)
