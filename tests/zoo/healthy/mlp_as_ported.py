"""The mlp pair as ported, on several seeds."""

from zoo.bases import mlp
from zoo.trial import Healthy

HEALTHY = Healthy(mlp.trial, seeds=tuple(range(10)), quick=True)
