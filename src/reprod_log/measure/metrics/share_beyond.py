"""Share of the elements whose absolute difference is beyond the limit that was measured for.

When: detections, masks and quantised values, where a few elements may flip but most have to agree.
Why: it says how widespread a difference is, which no maximum and no mean does. It exists only where the measurement was
asked to count with a limit of its own.
"""

from __future__ import annotations

import math

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The share beyond the measurement's limit, from 0 to 1; NaN if it was measured without one."""
    share = measurement.share_beyond
    return math.nan if share is None else share
