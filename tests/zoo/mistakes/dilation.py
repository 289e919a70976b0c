"""A convolution without dilation (and less padding)."""

from zoo.bases import unet
from zoo.trial import Mistake, Trial


def plant(trial: Trial) -> None:
    layer = trial.candidate.fuse
    layer._dilation, layer._padding, layer._updated_padding = [1, 1], 1, [1, 1]


MISTAKE = Mistake(
    unet.trial,
    plant,
    rules=("layer_setting",),
    words=("dilation",),
    place=("fuse",),
)
