"""The reader with elu by exp, and a cross entropy written by hand."""

import paddle
import paddle.nn.functional as PF

from zoo.bases import lstm
from zoo.trial import Healthy, Trial


class ByHand(lstm.PaddleReader):
    def activate(self, x):
        return paddle.where(x > 0, x, paddle.expm1(paddle.minimum(x, paddle.zeros_like(x))))


def loss(outputs, targets):
    logs = outputs - paddle.logsumexp(outputs, axis=-1, keepdim=True)
    return -(logs * PF.one_hot(targets, outputs.shape[-1]).astype(logs.dtype)).sum() / targets.size


def make(seed: int) -> Trial:
    trial = lstm.trial(seed)
    trial.candidate.__class__ = ByHand
    return trial.with_candidate_loss(loss)


HEALTHY = Healthy(make, seeds=tuple(range(10)))
