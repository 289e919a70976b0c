"""The activation of a residual block before the addition in place of after it."""

import paddle.nn.functional as PF

from zoo.bases import resnet
from zoo.trial import Mistake, Trial


class Broken(resnet.PaddleBlock):
    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.join(PF.relu(y), x if self.short is None else self.short(x))


def plant(trial: Trial) -> None:
    trial.candidate.blocks[2].__class__ = Broken


MISTAKE = Mistake(
    resnet.trial,
    plant,
    rules=("operator",),
    words=("inside blocks.2",),
    place=("blocks.2", "gap"),
)
