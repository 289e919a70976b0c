"""The unet pair as ported, on several seeds."""

from zoo.bases import unet
from zoo.trial import Healthy

HEALTHY = Healthy(unet.trial, seeds=tuple(range(10)))
