"""RMSProp in place of SGD."""

import paddle

from zoo.bases import mlp
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> Trial:
    def make(model):
        schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.5, 12)
        return paddle.optimizer.RMSProp(schedule, parameters=model.parameters()), schedule

    return trial.with_candidate_optimizer(make)


MISTAKE = Mistake(
    mlp.trial,
    plant,
    rules=("optimizer_setting",),
    words=("kinds",),
    place=("update", "optimizer/", "parameter"),
)
