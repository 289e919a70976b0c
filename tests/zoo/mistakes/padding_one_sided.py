"""Padding below and to the right only, as "same" padding with a stride has it elsewhere."""

import paddle

from zoo.bases import unet
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    other = paddle.nn.Conv2D(8, 12, 3, stride=2, padding=[0, 1, 0, 1])
    other.set_state_dict(trial.candidate.down.state_dict())
    trial.candidate.down = other


MISTAKE = Mistake(
    unet.trial,
    plant,
    rules=("layer_setting",),
    words=("padding of down",),
    place=("down",),
)
