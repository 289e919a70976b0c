"""Adam with L2 in place of AdamW."""

import paddle

from zoo.bases import bert
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    return trial.with_candidate_optimizer(lambda model: bert.paddle_optimizer(model, kind=paddle.optimizer.Adam))


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("optimizer_setting",),
    words=("kinds",),
    place=("update", "optimizer/", "parameter"),
)
