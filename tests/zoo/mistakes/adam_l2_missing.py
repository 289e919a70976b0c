"""Adam without its L2 term."""

from zoo.bases import lstm
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: lstm.paddle_optimizer(model, weight_decay=None))


MISTAKE = Mistake(
    lstm.trial,
    plant,
    rules=("optimizer_setting",),
    words=("decay",),
    place=("update", "optimizer/", "parameter"),
)
