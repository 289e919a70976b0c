"""The trunk cut before the head."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


class Broken(cnn.PaddleNet):
    def flat(self, x):
        return x.flatten(1).detach()


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("cut_graph",),
    words=("cut", "no gradient"),
    place=("up", "pool", "conv", "bn", "backward", "gradient"),
)
