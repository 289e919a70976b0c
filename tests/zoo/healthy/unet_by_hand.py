"""The U-Net with group norm and SiLU written by hand, and the loss as a sum."""

import paddle
from paddle import nn

from zoo.bases import unet
from zoo.trial import Healthy, Trial


class Norm(nn.GroupNorm):
    def forward(self, x):
        groups = x.reshape([x.shape[0], self._num_groups, -1])
        mean = groups.mean(axis=-1, keepdim=True)
        variance = (groups * groups).mean(axis=-1, keepdim=True) - mean * mean
        y = ((groups - mean) / paddle.sqrt(variance + self._epsilon)).reshape(x.shape)
        return y * self.weight.reshape([1, -1, 1, 1]) + self.bias.reshape([1, -1, 1, 1])


class Act(nn.Silu):
    def forward(self, x):
        return x / (1.0 + paddle.exp(-x))


def loss(outputs, targets):
    return ((outputs - targets) ** 2).sum() / outputs.size


def make(seed: int) -> Trial:
    trial = unet.trial(seed)
    for layer in trial.candidate.sublayers():
        if isinstance(layer, nn.GroupNorm):
            layer.__class__ = Norm
        elif isinstance(layer, nn.Silu):
            layer.__class__ = Act
    return trial.with_candidate_loss(loss)


HEALTHY = Healthy(make, seeds=tuple(range(10)))
