"""Decay on biases and norms too."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: bert.paddle_optimizer(model, apply_decay_param_fun=None))


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("update_fit",),
    words=("decay is applied",),
    place=("update", "optimizer/", "parameter"),
    quick=True,
)
