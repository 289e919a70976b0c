"""Smallest absolute difference of any element.

When: only to read reports in the classic form, which show it.
Why: it is the weakest of all: one equal element makes it 0, whatever the others do.
"""

from __future__ import annotations

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The smallest |candidate - reference|."""
    return measurement.min_abs
