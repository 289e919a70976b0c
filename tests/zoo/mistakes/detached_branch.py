"""A branch whose gradient is cut."""

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


class Broken(cnn.PaddleNet):
    def branch(self, x):
        return super().branch(x.detach())


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("cut_graph",),
    words=("cut",),
    place=("act1", "bn1", "backward/#0", "gradient"),
    quick=True,
)
