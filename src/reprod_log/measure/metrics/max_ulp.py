"""Largest distance in units of the last place: how many representable numbers lie between the two.

When: the same dtype on both sides and nearly the same operations: a port of one kernel, a change of compiler flags.
Why: 1 or 2 means 'rounded differently' whatever the size of the number and the dtype; after sums that cancel it is huge
without anything being wrong. It does not exist across dtypes or for integers.
"""

from __future__ import annotations

import math

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The largest ULP distance; NaN unless both sides share one floating dtype."""
    return math.nan if measurement.max_ulp is None else measurement.max_ulp
