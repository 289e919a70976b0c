"""The lstm pair as ported, on several seeds."""

from zoo.bases import lstm
from zoo.trial import Healthy

HEALTHY = Healthy(lstm.trial, seeds=tuple(range(10)))
