"""The residual network as ported, on several seeds: float32 chaos behind kinks, and nothing wrong."""

from zoo.bases import resnet
from zoo.trial import Healthy

HEALTHY = Healthy(resnet.trial, seeds=tuple(range(10)))
