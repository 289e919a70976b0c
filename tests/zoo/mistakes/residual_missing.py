"""A residual connection left out."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


class Broken(bert.PaddleLayer):
    def residual(self, x, y):
        return y


def plant(trial: Trial) -> None:
    trial.candidate.layers[0].__class__ = Broken


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("add", "resid"),
    place=("layers.0",),
)
