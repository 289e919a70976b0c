"""Sums that overflow or vanish are taken again, rescaled, in blocks of any size: against exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_measure_arrays import assert_as_exact
from ways import measured_by

from reprod_log.measure.elements import worst_elements
from reprod_log.measure.fused import measure_arrays

HUGE, TINY = 1.5e308, 3e-300
PAIRS: dict[str, tuple[Any, Any]] = {
    "squares overflow": ([1e200, 3e200, -2e200, 5e199, 7.0], [1.5e200, 3e200, -2e200, 4e199, 9.0]),
    "squares vanish": ([TINY, 2 * TINY, 0.0, -TINY, 5 * TINY], [2 * TINY, 2 * TINY, TINY, TINY, 0.0]),
    "the difference overflows": ([HUGE, -HUGE, HUGE, 1.0, 0.0], [-HUGE, HUGE, HUGE, 2.0, 0.0]),
    "the difference overflows late": ([1.0, 2.0, 4.0, HUGE, HUGE], [1.0, 3.0, 4.0, -HUGE, HUGE / 2]),
    "one side only": ([1e200, 2e200, 1e200, -1e200, 1.0], [1.0, 2.0, -3.0, 4.0, 5.0]),
    "far apart": ([1.0, -2.0, 3.0, 4.0, -5.0], [1e-3, 2e-3, 3e-3, -4e-3, 5e-3]),
    "huge without a partner": ([np.nan, 1e250, 1e-250, 2e-250, np.inf], [1e250, np.nan, 2e-250, 1e-250, np.inf]),
    "nothing finite in a block": ([np.nan, np.nan, 1e200, 2e200, 3e200], [np.nan, np.inf, 2e200, 2e200, -3e200]),
    "zeros against huge": ([0.0, 0.0, 0.0, 0.0, 0.0], [1e200, -1e200, 0.0, 3e200, 1e200]),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("way", ["numpy", "kernel"])
def test_sums_out_of_range_are_taken_again_in_every_block(name: str, way: str) -> None:
    ours, theirs = (np.array(side) for side in PAIRS[name])
    with measured_by(way):
        for block in (1, 2, 5, 100):
            assert_as_exact(measure_arrays(ours, theirs, block=block), ours, theirs)


@pytest.mark.parametrize("name", PAIRS)
def test_complex_values_are_rescaled_in_both_parts(name: str) -> None:
    ours, theirs = (np.array(side) for side in PAIRS[name])
    finite = np.isfinite(ours) & np.isfinite(theirs)
    ours, theirs = ours[finite] / 2, theirs[finite] / 2
    for left, right in (
        (ours + 1j * ours[::-1], theirs + 0j),
        (1j * ours, 1j * theirs),
        (ours + 0j, ours + 1j * theirs[::-1]),
    ):
        for block in (1, 2, 100):
            assert_as_exact(measure_arrays(left, right, block=block), left, right)


def test_one_value_without_a_partner_does_not_set_the_scale_of_the_pairs() -> None:
    ours, theirs = np.array([8e-200, np.nan, 1e-200]), np.array([8e-200, 512e200, 3e-200])
    for block in (1, 2, 3):
        assert_as_exact(measure_arrays(ours, theirs, block=block), ours, theirs)
        assert_as_exact(measure_arrays(theirs, ours, block=block), theirs, ours)


def test_relative_difference_is_known_where_the_difference_is_not() -> None:
    ours, theirs = np.array([HUGE, 2.0, 0.0, HUGE, 1.0]), np.array([-HUGE, 3.0, 0.0, HUGE, -2.0])
    found = measure_arrays(ours, theirs)
    assert (found.max_abs, found.max_rel) == (np.inf, 3.0)
    assert found.mean_rel == pytest.approx((2.0 + 0.5 + 3.0) / 5, rel=1e-15)


@pytest.mark.parametrize("way", ["numpy", "kernel"])
def test_places_are_found_in_arrays_of_several_calls(way: str) -> None:
    # The kernel is called for 2^24 elements at a time.
    ours, theirs = np.zeros(17_000_000, np.int8), np.zeros(17_000_000, np.int8)
    theirs[[3, 9_000_000, 16_777_216, 16_999_999]] = [1, 4, 2, 3]
    with measured_by(way):
        found = worst_elements(ours, theirs, most=3)
        assert [one.index for one in found] == [(9_000_000,), (16_999_999,), (16_777_216,)]
        assert measure_arrays(ours, theirs).worst == found[0]
