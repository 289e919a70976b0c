"""Whether two outputs are the same but for rounding: the one question that verification asks of numbers."""

from collections.abc import Sequence

import numpy as np

from reprod_log.layers.transform import Array

# Measured between torch and paddle on CPU: 1e-13 at most in float64 (eps is stored as float32), 1e-6 per layer in
# float32, growing to 1e-4 through a whole model. A wrong layout, partner or setting shows at 1e-6 in float64, and
# mostly far above.
LAYER_LIMIT = {"float64": 1e-9, "float32": 1e-4}
MODEL_LIMIT = 1e-3


def difference(one: Sequence[Array], other: Sequence[Array]) -> float:
    """The largest relative difference (L2) over all outputs; infinite if they cannot be compared, NaN if not finite."""
    if len(one) != len(other) or not one:
        return float("inf")
    return max((_relative(a, b) for a, b in zip(one, other, strict=True)), key=lambda x: (np.isnan(x), x))


def rearranged_difference(one: Sequence[Array], other: Sequence[Array]) -> float:
    """The same for outputs that may hold their values in another order (batch first or time first, say)."""
    direct = difference(one, other)
    if direct <= MODEL_LIMIT or len(one) != len(other):
        return direct
    if any(a.size != b.size for a, b in zip(one, other, strict=True)):
        return float("inf")
    return difference([np.sort(a, axis=None) for a in one], [np.sort(b, axis=None) for b in other])


def _relative(one: Array, other: Array) -> float:
    if one.shape != other.shape:
        return float("inf")
    one, other = one.astype(np.float64), other.astype(np.float64)
    scale = float(np.linalg.norm(one.ravel()))
    off = float(np.linalg.norm((one - other).ravel()))
    if scale == 0.0:
        return 0.0 if off == 0.0 else float("inf")
    return off / scale
