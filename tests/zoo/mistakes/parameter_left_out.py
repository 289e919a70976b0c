"""One layer not given to the optimizer."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(
        lambda model: cnn.paddle_optimizer(
            model, parameters=[p for p in model.parameters() if p is not model.square.weight]
        )
    )


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("update_fit",),
    words=("does not train",),
    place=("update", "optimizer/", "parameter", "clip"),
)
