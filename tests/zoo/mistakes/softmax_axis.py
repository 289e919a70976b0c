"""Softmax over another axis."""

import paddle.nn.functional as PF

from zoo.bases import bert
from zoo.trial import Mistake, Trial


class Broken(bert.PaddleLayer):
    def weights(self, scores):
        return PF.softmax(scores, axis=-2)


def plant(trial: Trial) -> None:
    trial.candidate.layers[0].__class__ = Broken


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("softmax",),
    place=("layers.0",),
)
