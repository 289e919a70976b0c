"""Mean absolute difference.

When: the classic check of a forward pass or a loss (1e-6 for float32), on values of about size 1.
Why: it is steady, because rounding averages out; but an error in few elements of a large tensor nearly vanishes in
it, so it is best used together with max_abs or rel_l2.
"""

from __future__ import annotations

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The mean of |candidate - reference|."""
    return measurement.mean_abs
