"""JAX: its arrays, and models of Flax (NNX and linen), Equinox and Haiku, which are run inside one jitted function."""

from __future__ import annotations

from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.jax.programs import JaxPrograms
from reprod_log.frameworks.jax.tensors import JaxTensors

FRAMEWORK = Framework("jax", JaxTensors(), programs=JaxPrograms())
