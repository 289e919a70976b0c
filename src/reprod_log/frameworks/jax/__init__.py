"""JAX: its arrays, and models of Flax (NNX and linen), Equinox and Haiku, which are run inside one jitted function."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from reprod_log.errors import UsageError
from reprod_log.frameworks.contract import Framework, TensorFacts
from reprod_log.frameworks.jax.programs import JaxPrograms
from reprod_log.recording import Array


class JaxTensors:
    def is_tensor(self, value: object) -> bool:
        return isinstance(value, jax.Array)

    def view(self, tensor: Any) -> tuple[Array, bool]:
        if isinstance(tensor, jax.core.Tracer):
            raise UsageError(
                f"a JAX tracer ({tensor.aval}) has no values yet: it is inside jit, grad or vmap. "
                "Return the array from the transformed function and record it outside."
            )
        if jax.dtypes.issubdtype(tensor.dtype, jax.dtypes.prng_key):
            tensor = jax.random.key_data(tensor)
        # JAX uses the dtypes of ml_dtypes itself; on CPU this is a read-only view.
        return np.asarray(tensor), False

    def tensor(self, array: Array, *, like: Any = None, dtype: str | None = None, gradient: bool = False) -> Any:
        made = jax.numpy.asarray(array, dtype=dtype)
        return made if like is None else jax.device_put(made, like.device)

    def facts(self, tensor: Any) -> TensorFacts:
        return TensorFacts(tuple(int(size) for size in tensor.shape), tensor.dtype.name, str(tensor.device))


FRAMEWORK = Framework("jax", JaxTensors(), programs=JaxPrograms())
