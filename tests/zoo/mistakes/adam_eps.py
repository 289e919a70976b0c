"""Another epsilon of AdamW."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: bert.paddle_optimizer(model, epsilon=1e-8))


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("optimizer_setting",),
    words=("eps",),
    place=("update", "optimizer/", "parameter"),
)
