"""The last token pooled instead of the first."""

from zoo.bases import bert
from zoo.trial import Mistake, Trial


class Broken(bert.PaddleBert):
    def pool(self, x):
        return x[:, -1]


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    bert.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("getitem", "slice", "index"),
    place=("pooler", "isolated@step0/forward/#0"),
)
