"""The gan pair as ported, on several seeds."""

from zoo.bases import gan
from zoo.trial import Healthy

HEALTHY = Healthy(gan.trial, seeds=tuple(range(10)), quick=True)
