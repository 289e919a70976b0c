"""Relative L2 difference, |candidate - reference| / |reference| as norms of the whole tensor.

When: activations, gradients and weights of any size; the first choice when no scale is known.
Why: it does not depend on the scale of the tensor nor on its number of elements, and elements near zero do not upset
it; it is infinite where the reference is all zero and the candidate is not.
"""

from __future__ import annotations

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The norm of the difference divided by the norm of the reference."""
    return measurement.rel_l2
