"""Share of the elements whose absolute difference is beyond the limit that was measured for.

When: detections, masks and quantised values, where a few elements may flip but most have to agree.
Why: it says how widespread a difference is, which no maximum and no mean does. Needs a limit of max_abs or mean_abs for
the same entries: that is what elements are beyond.
"""

from __future__ import annotations

import math

from reprod_log.measure.measurement import Measurement


def value(measurement: Measurement) -> float:
    """The share beyond the measurement's limit, from 0 to 1; NaN if it was measured without one."""
    share = measurement.share_beyond
    return math.nan if share is None else share
