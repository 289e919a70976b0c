"""Cosine distance, 1 - cos of the angle between the two tensors as vectors.

When: gradients and embeddings, whose direction matters more than their length; quantised models.
Why: it does not see a constant factor, so it tells a wrong direction from a wrong scale; never use it alone.
"""

from __future__ import annotations

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The cosine distance, from 0 (same direction) to 2 (opposite)."""
    return measurement.cosine_distance
