"""SGD without momentum."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: cnn.paddle_optimizer(model, momentum=0.0))


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("optimizer_setting",),
    words=("momentum",),
    place=("update", "optimizer/", "parameter"),
    quick=True,
)
