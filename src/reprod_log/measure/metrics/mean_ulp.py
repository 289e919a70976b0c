"""Mean distance in units of the last place.

When: like max_ulp, on tensors where some elements cancel.
Why: it says how much of the precision of the dtype is used up on average, for every dtype on the same scale.
"""

from __future__ import annotations

import math

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The mean ULP distance; NaN unless both sides share one floating dtype."""
    return math.nan if measurement.mean_ulp is None else measurement.mean_ulp
