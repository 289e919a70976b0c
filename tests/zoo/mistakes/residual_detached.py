"""A residual connection cut in the backward pass."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


class Broken(bert.PaddleLayer):
    def residual(self, x, y):
        return x.detach() + y


def plant(trial: Trial) -> None:
    trial.candidate.layers[0].__class__ = Broken


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("cut_graph",),
    words=("cut",),
    place=("layers", "backward"),
)
