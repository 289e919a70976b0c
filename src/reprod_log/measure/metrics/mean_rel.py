"""Mean relative difference, |candidate - reference| / |reference|.

When: like max_rel, where single elements near zero may be off.
Why: an average of ratios shows a constant factor between the two sides at once.
"""

from __future__ import annotations

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The mean of the relative differences."""
    return measurement.mean_rel
