"""Positions that start at one."""

import paddle

from zoo.bases import bert
from zoo.trial import Mistake, Trial


class Broken(bert.PaddleBert):
    def positions(self, ids):
        return (paddle.arange(ids.shape[1]) + 1).clip(max=6)


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("places", "input"),
    place=("places",),
)
