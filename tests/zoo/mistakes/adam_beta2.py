"""Another beta2."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: bert.paddle_optimizer(model, beta2=0.999))


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("optimizer_setting",),
    words=("beta2",),
    place=("update", "optimizer/", "parameter"),
)
