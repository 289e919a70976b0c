"""LeakyReLU in place of ReLU."""

import paddle

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    trial.candidate.act1 = paddle.nn.LeakyReLU(0.01)


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("other_layer", "operator"),
    words=("leakyrelu", "leaky_relu"),
    place=("act1", "conv2", "bn2"),
)
