"""Sums that end a measurement and steps between floats, asked directly at their corners."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from reprod_log.measure import small
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.small import SMALL, _cut, is_small, measure_small
from reprod_log.measure.totals import SideTotals, Totals, _cosine_distance, _relative_l2, _ulp, scaled
from reprod_log.measure.ulp import ulp_distances


def test_numbers_beyond_float64_keep_their_sign() -> None:
    assert scaled(1.5, 3) == 12.0
    assert scaled(1.0, 5000) == math.inf
    assert scaled(-1.0, 5000) == -math.inf


def test_side_without_finite_values_still_counts_the_others() -> None:
    found = SideTotals(nan=3, inf=2).summary()
    assert (found.nan, found.inf) == (3, 2)
    assert math.isnan(found.mean)


def test_mean_of_equal_values_stays_among_them() -> None:
    for total, mean in ((2.9, 1.0), (3.1, 2.0), (3.0, 1.5)):
        found = SideTotals(
            finite=2, min=1.0, max=2.0, sum={2.9: 1.9, 3.1: 4.1, 3.0: 3.0}[total], deviations=0.5
        ).summary()
        assert found.mean == mean
    assert SideTotals(finite=2, min=1.0, max=1.0, sum=2.0, deviations=1e-20).summary().std == 0.0
    assert SideTotals(finite=2, min=1.0, max=3.0, sum=4.0, deviations=2.0).summary().std == 1.0


def test_cosine_distance_is_that_of_the_angle() -> None:
    for ours, theirs in (
        ([1.0, 0.0], [1.0, 1.0]),
        ([3.0, 4.0], [4.0, 3.0]),
        ([1.0, 2.0], [-1.0, -2.0]),
        ([2.0, 0.0], [0.0, 3.0]),
    ):
        a, b = np.array(ours), np.array(theirs)
        totals = Totals(2, pairs=2, differing=2, squares=float(((a - b) ** 2).sum()))
        totals.reference_squares, totals.candidate_squares = float(a @ a), float(b @ b)
        expected = 1 - float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))
        assert _cosine_distance(totals) == pytest.approx(expected)
        totals.dot = float(a @ b)
        assert _cosine_distance(totals) == pytest.approx(expected)
    assert _cosine_distance(Totals(1)) == 0.0
    assert _cosine_distance(Totals(1, differing=1, reference_squares=1.0)) == 1.0
    assert _cosine_distance(Totals(1, differing=1, candidate_squares=1.0)) == 1.0


def test_relative_difference_needs_something_to_be_relative_to() -> None:
    assert _relative_l2(Totals(1, squares=0.0, reference_squares=0.0)) == 0.0
    assert _relative_l2(Totals(1, squares=1.0, reference_squares=0.0)) == math.inf
    assert _relative_l2(Totals(1, squares=1.0, reference_squares=4.0)) == 0.5
    assert _relative_l2(Totals(1, squares=4.0, reference_squares=4.0, exponent=3, reference_exponent=1)) == 4.0


def test_steps_of_nothing_comparable_are_unknown_and_of_nothing_none() -> None:
    assert _ulp(Totals(4, pairs=2), 6.0, 2) == 3.0
    assert math.isnan(_ulp(Totals(4), 6.0, 0))
    assert _ulp(Totals(0), 0.0, 0) == 0.0


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_steps_of_one_byte_floats_are_counted_by_rank(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    with np.errstate(all="ignore"):
        every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    ordered = np.unique(every[np.isfinite(every)]).astype(dtype)
    middle = len(ordered) // 2
    reference, candidate = ordered[[0, middle, middle]], ordered[[5, middle - 3, middle]]
    found = ulp_distances(reference, candidate, component=dtype, scratch=np.empty(3))
    assert found == (5.0, 8.0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_steps_are_counted_through_zero_and_over_exponents(dtype: type) -> None:
    tiny = np.array([1], f"u{np.dtype(dtype).itemsize}").view(dtype)[0]
    ours, theirs = np.array([0.0, tiny, 1.0, -0.0], dtype), np.array([tiny, -tiny, 1.0, 0.0], dtype)
    largest, total = ulp_distances(ours, theirs, component=np.dtype(dtype), scratch=np.empty(4))
    assert (largest, total) == (2.0, 3.0)
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    one, two = np.array([1.0], dtype), np.array([2.0], dtype)
    step = int(two.view(bits)[0]) - int(one.view(bits)[0])
    many, others = np.repeat(one, 100_000), np.repeat(two, 100_000)
    found = ulp_distances(many, others, component=np.dtype(dtype), scratch=np.empty(100_000))
    assert found == (float(step), float(step) * 100_000), "sums leave the width of the dtype"


def test_small_pairs_are_of_one_shape_dtype_and_plain_layout() -> None:
    ones = np.ones((2, 3))
    assert is_small(ones, ones.copy())
    assert is_small(np.ones(1), np.ones(1))
    assert is_small(np.ones(SMALL), np.ones(SMALL))
    assert not is_small(np.ones(SMALL + 1), np.ones(SMALL + 1))
    assert not is_small(np.ones(0), np.ones(0))
    assert not is_small(ones, ones.reshape(3, 2))
    assert not is_small(ones, ones.astype(np.float32))
    assert not is_small(ones, np.ones((3, 2)).T)
    assert not is_small(np.ones((3, 2)).T, ones)
    assert not is_small(ones.astype(">f8"), ones.astype(">f8"))


def test_small_pairs_that_need_a_closer_look_keep_their_limit() -> None:
    lost = np.array([1.0, math.nan, 3.0])
    (found,) = measure_small([(lost, np.array([2.0, 1.0, 3.0]), 0.5)])
    assert (found.limit, found.beyond_limit, found.nonfinite_mismatched) == (0.5, 1, 1)
    assert found == measure_arrays(lost, np.array([2.0, 1.0, 3.0]), limit=0.5)


def test_small_pairs_are_cut_into_runs_that_stay_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "_TOGETHER", 10)
    assert _cut([7, 8, 9], [5, 5, 1]) == [[7, 8], [9]]
    assert _cut([7, 8, 9], [5, 6, 4]) == [[7], [8, 9]]
    assert _cut([], []) == []
