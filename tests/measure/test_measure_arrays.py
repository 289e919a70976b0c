"""Every statistic against the exact implementation, over dtypes, shapes, layouts, special values and block sizes."""

from __future__ import annotations

import json
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import exact_measurement as exact
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_for_arrays import COMPLEX, FLOATS, array_pairs
from ways import WAYS, measured_by

from reprod_log.measure.dtypes import dtype_pair
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement
from reprod_log.recording.plain import from_plain

EXACT = ("count", "differing", "nan_both", "nonfinite_mismatched", "beyond_limit")
SUMS = ("mean_abs", "rmse", "max_rel", "mean_rel", "rel_l2")
TINY = 5e-324


def close(got: float, wanted: float, *, rel: float = 1e-12, within: float = 0.0) -> bool:
    """Equal, both NaN, or as near as float64 sums can be (a few steps apart where numbers are subnormal)."""
    if math.isnan(wanted) or math.isnan(got):
        return math.isnan(wanted) and math.isnan(got)
    if math.isinf(wanted) or math.isinf(got):
        # Within a rounding of the largest float64, either side of the end is right.
        return got == wanted or min(abs(got), abs(wanted)) > 1.79e308
    return abs(got - wanted) <= max(rel * abs(wanted), within, 4 * TINY)


def assert_side(got: Any, wanted: dict[str, float], *, extreme_rel: float) -> None:
    assert (got.nan, got.inf) == (wanted["nan"], wanted["inf"])
    for name in ("min", "max", "abs_max"):
        assert close(getattr(got, name), wanted[name], rel=extreme_rel), name
    scale = wanted["rms"] if math.isfinite(wanted["rms"]) else 0.0
    for name in ("mean", "std", "rms"):
        assert close(getattr(got, name), wanted[name], within=1e-14 * scale), name


def assert_as_exact(
    got: Measurement, reference: np.ndarray, candidate: np.ndarray, *, limit: float | None = None
) -> None:
    """Counts, extremes and places are equal; sums agree to 1e-12."""
    wanted = exact.measure(reference, candidate, limit=limit)
    pair = dtype_pair(reference.dtype, candidate.dtype)
    # A magnitude is a square root, and a longdouble has more digits than the result: not exact to the last bit.
    is_root = pair.wide.kind == "c" or pair.wide.char in "gG"
    for name in EXACT:
        if not (is_root and name == "beyond_limit"):
            assert getattr(got, name) == wanted[name], name
    extreme_rel = 1e-15 if is_root else 0.0 if pair.arithmetic.name != "SPLIT" else 3e-16
    for name in ("max_abs", "min_abs"):
        assert close(getattr(got, name), wanted[name], rel=extreme_rel), name
    # The magnitude of a subnormal complex number has only a few digits, and so has its ratio to anything.
    coarse = is_root and any(0 < v.magnitude < 1e-290 for v in map(exact.number, reference.flat))
    if math.isinf(wanted["max_rel"]):
        # A ratio beyond float64 counts as infinite, and so does a mean with it.
        wanted["mean_rel"] = math.inf
    for name in SUMS:
        if not (coarse and name in ("max_rel", "mean_rel")):
            assert close(getattr(got, name), wanted[name]), name
    scale = 1.0 if not 0 < wanted["rel_l2"] < 1 else wanted["rel_l2"] ** 2
    assert close(got.cosine_distance, wanted["cosine_distance"], within=1e-14 + 1e-12 * scale)
    assert_side(got.reference, wanted["reference"], extreme_rel=extreme_rel)
    assert_side(got.candidate, wanted["candidate"], extreme_rel=extreme_rel)
    if not is_root:
        assert got.octaves == wanted["octaves"]
        assert (got.worst.index if got.worst else None) == wanted["worst"]
    assert sum(n for _, n in got.octaves) == wanted["differing"]
    assert (got.max_ulp is None) == (pair.ulp_component is None)
    if pair.ulp_component is not None and got.comparable:
        largest, mean = exact.ulp(reference, candidate, pair.ulp_component)
        assert got.max_ulp == largest
        assert close(got.mean_ulp, mean)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=250, deadline=None)
@given(pair=array_pairs(), block=st.sampled_from([1, 3, 16, None]), limit=st.sampled_from([None, 0.0, 1e-6, 1.0]))
def test_every_statistic_is_exact_for_any_pair(
    way: str, pair: tuple[np.ndarray, np.ndarray], block: int | None, limit: float | None
) -> None:
    reference, candidate = pair
    with warnings.catch_warnings(), measured_by(way):
        warnings.simplefilter("error")
        got = measure_arrays(reference, candidate, limit=limit, block=block)
    assert_as_exact(got, reference, candidate, limit=limit)


@settings(max_examples=100, deadline=None)
@given(array_pairs([*FLOATS, *COMPLEX]))
def test_the_measurement_survives_json_for_any_pair(pair: tuple[np.ndarray, np.ndarray]) -> None:
    got = measure_arrays(*pair, limit=1e-3)
    text = json.dumps(got.to_dict())
    again = Measurement.from_dict(json.loads(text))
    assert json.dumps(again.to_dict()) == text
    assert repr(again) == repr(got)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scale", [1.0, 1e300, 0.0])
def test_every_field_has_its_type_however_the_value_was_made(way: str, scale: float) -> None:
    a = np.arange(1.0, 5.0)
    with measured_by(way):
        got = measure_arrays(a * scale, (a + 1) * scale)
    assert got.worst is not None
    assert from_plain(Measurement, got) == got


@pytest.mark.parametrize("way", WAYS)
def test_threads_measure_the_same_as_one_alone(way: str) -> None:
    rng = np.random.default_rng(4)
    pairs = [(a := rng.standard_normal(20_000 + i).astype(np.float32), a + np.float32(1e-5)) for i in range(24)]
    with measured_by(way):
        alone = [measure_arrays(*pair) for pair in pairs]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda pair: measure_arrays(*pair), pairs))
    assert together == alone
