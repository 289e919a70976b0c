"""The sequence reversed between two recurrent layers."""

from zoo.bases import lstm
from zoo.trial import Mistake, Trial


class Broken(lstm.PaddleReader):
    def between(self, x):
        return x[:, ::-1]


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    lstm.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("order", "revers", "permut"),
    place=("gru",),
)
