"""The padding mask is ignored."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


class Broken(bert.PaddleLayer):
    def masked(self, scores, mask):
        return scores


def plant(trial: Trial) -> None:
    trial.candidate.layers[0].__class__ = Broken


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("mask", "add", "mul"),
    place=("layers.0",),
)
