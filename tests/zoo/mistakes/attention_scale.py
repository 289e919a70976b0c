"""Attention scores not scaled."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


class Broken(bert.PaddleLayer):
    def scaled(self, scores):
        return scores


def plant(trial: Trial) -> None:
    trial.candidate.layers[0].__class__ = Broken


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("div", "scale", "times", "sqrt"),
    place=("layers.0",),
    quick=True,
)
