"""Skip connection joined the other way round."""

import paddle

from zoo.bases import unet
from zoo.trial import Mistake, Trial


class Broken(unet.PaddleUnet):
    def join(self, y, skip):
        return paddle.concat([skip, y], 1)


def plant(trial: Trial) -> None:
    trial.candidate.__class__ = Broken


MISTAKE = Mistake(
    unet.trial,
    plant,
    rules=("between_layers", "operator"),
    words=("cat", "order", "permut"),
    place=("fuse", "isolated@step0/forward/#0"),
)
