"""The bert pair as ported, on several seeds."""

from zoo.bases import bert
from zoo.trial import Healthy

HEALTHY = Healthy(bert.trial, seeds=tuple(range(10)))
