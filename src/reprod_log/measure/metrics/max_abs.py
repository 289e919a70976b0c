"""Largest absolute difference of any element.

When: values of a known, fixed size: normalised images, probabilities, losses, integers that must be equal.
Why: nothing hides in an average: one wrong element among millions is seen.
"""

from __future__ import annotations

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The largest |candidate - reference|."""
    return measurement.max_abs
