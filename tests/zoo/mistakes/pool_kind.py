"""Average in place of max pooling."""

import paddle

from zoo.bases import unet
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.pool = paddle.nn.AvgPool2D(3, stride=1, padding=1)


MISTAKE = Mistake(
    unet.trial,
    plant,
    rules=("other_layer", "operator"),
    words=("pool",),
    place=("pool", "forward/up#0:input"),
)
