"""No weight decay."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: cnn.paddle_optimizer(model, weight_decay=None))


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("optimizer_setting", "update_fit"),
    words=("decay",),
    place=("update", "optimizer/", "parameter"),
)
