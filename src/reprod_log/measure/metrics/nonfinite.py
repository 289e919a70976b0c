"""Positions where a NaN or infinity of one side has no equal on the other.

When: always, with limit 0, where both sides may overflow: masks, logarithms, mixed precision.
Why: the other metrics cover only values that can be subtracted; this one counts what they leave out. NaN on both
sides is not counted here: it is no mismatch, and the judge looks at it by itself.
"""

from __future__ import annotations

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The number of positions that do not match."""
    return float(measurement.nonfinite_mismatched)
