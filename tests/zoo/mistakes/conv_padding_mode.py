"""Reflected instead of zero padding."""

import paddle

from zoo.bases import cnn
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    other = paddle.nn.Conv2D(8, 8, 3, padding=1, bias_attr=False, padding_mode="reflect")
    other.set_state_dict(trial.candidate.conv2.state_dict())
    trial.candidate.conv2 = other


MISTAKE = Mistake(
    cnn.trial,
    plant,
    rules=("layer_setting",),
    words=("padding_mode",),
    place=("conv2",),
)
