"""GELU by its tanh approximation, as a function."""

import paddle.nn.functional as PF

from zoo.bases import bert
from zoo.trial import Mistake, Trial


class Broken(bert.PaddleLayer):
    def activate(self, x):
        return PF.gelu(x, approximate=True)


def plant(trial: Trial) -> None:
    trial.candidate.layers[1].__class__ = Broken


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("gelu",),
    place=("layers.1",),
)
