"""Largest relative difference of any element, |candidate - reference| / |reference|.

When: values that span many sizes and stay away from zero: learning rates, scales, variances.
Why: each element is held against its own size; for values around zero it is too strict, since rounding of sums that
cancel is large beside the result, and it is infinite where the reference is 0 and the candidate is not.
"""

from __future__ import annotations

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The largest relative difference."""
    return measurement.max_rel
