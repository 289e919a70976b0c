"""The residual network with convolutions by unfolding, and with pooling, mean and loss written by hand."""

import paddle
import paddle.nn.functional as PF
from paddle import nn

from zoo.bases import resnet
from zoo.trial import Healthy, Trial


class Unfolded(nn.Conv2D):
    """A convolution by unfolding: other sums in another order."""

    def forward(self, x):
        given, _, height, width = self.weight.shape
        columns = PF.unfold(x, [height, width], strides=self._stride, paddings=self._padding)
        y = paddle.matmul(self.weight.reshape([given, -1]), columns)
        if self.bias is not None:
            y = y + self.bias.reshape([1, -1, 1])
        size = [(x.shape[-1 - axis] + 2 * self._padding - (height, width)[axis]) // self._stride[axis] + 1
                for axis in (1, 0)]  # fmt: skip
        return y.reshape([x.shape[0], given, *size])


class ByHand(resnet.PaddleNet):
    def features(self, x):
        y = self.blocks(x)
        return y.sum(axis=[2, 3]) / (y.shape[2] * y.shape[3])


def loss(outputs, targets):
    logs = outputs - paddle.logsumexp(outputs, axis=-1, keepdim=True)
    return -(logs * PF.one_hot(targets, outputs.shape[-1]).astype(logs.dtype)).sum() / outputs.shape[0]


def make(seed: int) -> Trial:
    trial = resnet.trial(seed)
    trial.candidate.__class__ = ByHand
    for layer in trial.candidate.sublayers():
        if type(layer) is nn.Conv2D:
            layer.__class__ = Unfolded
    return trial.with_candidate_loss(loss)


HEALTHY = Healthy(make, seeds=tuple(range(10)))
