"""The CNN as ported, batch norm in train mode, on several seeds."""

from zoo.bases import cnn
from zoo.trial import Healthy

HEALTHY = Healthy(cnn.trial, seeds=tuple(range(10)), quick=True)
