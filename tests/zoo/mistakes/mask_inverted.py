"""The padding mask with the wrong polarity."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


class Broken(bert.PaddleLayer):
    def masked(self, scores, mask):
        return super().masked(scores, 1.0 - mask)


def plant(trial: Trial) -> None:
    trial.candidate.layers[0].__class__ = Broken


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("mask", "sub", "add", "mul"),
    place=("layers.0",),
)
