"""Flax: NNX modules, whose calls are recorded inside one jitted function, with gradients and updates by optax."""

from __future__ import annotations

from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.flax.programs import FlaxPrograms, FlaxTensors

FRAMEWORK = Framework("flax", FlaxTensors(), programs=FlaxPrograms())
