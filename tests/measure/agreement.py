"""When two measurements of one pair are the same: everything is equal, but sums may end in other digits."""

from __future__ import annotations

import math

from reprod_log.measure.measurement import Measurement

SUMS = {"mean_abs", "rmse", "mean_rel", "rel_l2", "mean_ulp"}
SIDE_SUMS = {"mean", "std", "rms"}


def equal(got: float | None, wanted: float | None) -> bool:
    return got == wanted or (got != got and wanted != wanted)


def near(got: float | None, wanted: float | None, within: float = 0.0) -> bool:
    if got is None or wanted is None or not (math.isfinite(got) and math.isfinite(wanted)):
        return equal(got, wanted)
    return abs(got - wanted) <= max(1e-12 * abs(wanted), within)


def assert_same(got: Measurement, wanted: Measurement) -> None:
    """Sums agree to 1e-12, everything else is equal."""
    left, right = got.to_dict(), wanted.to_dict()
    for name in ("reference", "candidate"):
        mine, theirs = left.pop(name), right.pop(name)
        for key, value in theirs.items():
            if key in SIDE_SUMS:
                scale = theirs["rms"] if math.isfinite(theirs["rms"]) else 0.0
                assert near(mine[key], value, 1e-12 * scale), (name, key, mine[key], value)
            else:
                assert equal(mine[key], value), (name, key, mine[key], value)
    for key, value in right.items():
        if key in SUMS:
            assert near(left[key], value), (key, left[key], value)
        elif key == "cosine_distance":
            assert near(left[key], value, 1e-13), (key, left[key], value)
        elif isinstance(value, float):
            assert equal(left[key], value), (key, left[key], value)
        else:
            assert repr(left[key]) == repr(value), (key, left[key], value)
