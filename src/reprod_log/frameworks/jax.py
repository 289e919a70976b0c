"""JAX: arrays only. Its models are pure functions with nothing to hook; record their outputs with `run.log`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from reprod_log.errors import UsageError
from reprod_log.recording import Array

NAME = "jax"


def is_tensor(value: object) -> bool:
    return isinstance(value, jax.Array)


def view(tensor: Any) -> tuple[Array, bool]:
    if isinstance(tensor, jax.core.Tracer):
        raise UsageError(
            f"a JAX tracer ({tensor.aval}) has no values yet: it stands inside jit, grad or vmap. "
            "Return the array from the transformed function and record it outside."
        )
    if jax.dtypes.issubdtype(tensor.dtype, jax.dtypes.prng_key):
        tensor = jax.random.key_data(tensor)
    # JAX uses the dtypes of ml_dtypes itself; on CPU this is a read-only view.
    return np.asarray(tensor), False
