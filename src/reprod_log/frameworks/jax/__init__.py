"""JAX: its arrays, and models of Flax (NNX and linen), Equinox and Haiku, which are run inside one jitted function."""

from reprod_log.frameworks.contract import Framework
from reprod_log.frameworks.jax.programs import JaxPrograms, JaxTensors

FRAMEWORK = Framework("jax", JaxTensors(), programs=JaxPrograms())
