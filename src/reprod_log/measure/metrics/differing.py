"""Number of elements that are not equal.

When: data that must be equal bit for bit: token ids, masks, labels, text, shuffled indices.
Why: for these there is no small difference; it also exists for text and objects, which cannot be subtracted.
"""

from __future__ import annotations

import math

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The number of comparable elements that are not equal; NaN if none is comparable, or if it is an estimate."""
    if (measurement.count and not measurement.comparable) or measurement.estimate is not None:
        return math.nan
    return float(measurement.differing)
