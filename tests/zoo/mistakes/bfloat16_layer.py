"""One layer computed in bfloat16."""

import paddle

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


class Narrow(paddle.nn.Linear):
    def forward(self, x):
        if x.dtype == paddle.float64:
            return super().forward(x)
        rounded = x + (x.astype("bfloat16").astype(x.dtype) - x).detach()
        return super().forward(rounded)


def plant(trial: Trial) -> None:
    trial.candidate.fc1.__class__ = Narrow


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("precision_cut",),
    words=("bfloat16",),
    place=("fc1",),
)
