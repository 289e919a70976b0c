"""Root of the mean squared difference.

When: values of a known size where a few large differences matter more than many small ones.
Why: it stands between mean_abs and max_abs, and is what a noise floor is measured in.
"""

from __future__ import annotations

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The root mean square of the difference."""
    return measurement.rmse
