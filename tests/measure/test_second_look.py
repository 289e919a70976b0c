"""The rescaled second look and the dot product, in several blocks, against exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_measure_arrays import assert_as_exact
from ways import measured_by

from reprod_log.measure import kernel
from reprod_log.measure.dtypes import dtype_pair
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.kernel import worst_places
from reprod_log.measure.measurement import Measurement
from reprod_log.measure.rescaled import _exponent, _relative, _scale, _times

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


def test_exponents_bring_every_magnitude_below_one() -> None:
    assert [_exponent(np.array(values)) for values in ([1.0], [0.9, -0.5], [4.0, -5.0], [0.0], [])] == [
        1,
        0,
        3,
        -20000,
        -20000,
    ]
    assert _exponent(np.array([3 + 4j])) == 4
    assert _exponent(np.array([1j, 0.0])) == 2
    for values, exponent in (([3.0, -1.5], 2), ([3 + 4j], -1)):
        np.testing.assert_array_equal(_times(np.array(values), exponent), np.array(values) * 2.0**exponent)
    np.testing.assert_array_equal(_times(np.array([2.0**-1000]), 1500), [2.0**500])


def test_scale_looks_at_sides_pairs_and_differences_apart() -> None:
    ours, theirs = np.array([8.0, np.nan, 1.0]), np.array([8.0, 512.0, 3.0])
    for block in (1, 2, 3):
        scale = _scale(ours, theirs, pair=dtype_pair(ours.dtype, theirs.dtype), block=block)
        assert (scale.sides, scale.pairs, scale.difference) == ((4, 10), (4, 4), 2)
    wide, other = np.array([HUGE, 1.0]), np.array([-HUGE, 1.0])
    with np.errstate(all="ignore"):
        assert _scale(wide, other, pair=dtype_pair(wide.dtype, other.dtype), block=2).difference == 1025


def test_relative_difference_is_known_where_the_difference_is_not() -> None:
    with np.errstate(all="ignore"):
        found = _relative(np.array([HUGE, 2.0, 0.0, HUGE, 1.0]), np.array([-HUGE, 3.0, 0.0, HUGE, -2.0]))
    np.testing.assert_allclose(found, [2.0, 0.5, 0.0, 0.0, 3.0], rtol=1e-15)


# What the kernel says of single elements.


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_kernel_finds_the_places_that_differ_most(dtype: str) -> None:
    ours, theirs = np.zeros(50, dtype), np.zeros(50, dtype)
    theirs[[7, 30, 31, 49]] = [1, 3, 2, 3]
    order = [7, 30, 31, 49] if dtype == "bool" else [30, 49, 31, 7]
    pair = dtype_pair(ours.dtype, theirs.dtype)
    with measured_by("kernel"):
        for most in (1, 3, 9):
            assert worst_places(ours, theirs, pair=pair, most=most) == order[:most]
        assert worst_places(ours, ours, pair=pair, most=3) == []


def test_kernel_finds_places_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_CALL", 8)
    ours, theirs = np.zeros(21), np.zeros(21)
    theirs[[3, 9, 17, 20]] = [1.0, 4.0, 2.0, 3.0]
    with measured_by("kernel"):
        assert worst_places(ours, theirs, pair=dtype_pair(ours.dtype, ours.dtype), most=3) == [9, 20, 17]
        assert measure_arrays(ours, theirs).max_abs == 4.0


def test_kernel_leaves_other_dtypes_and_layouts_to_numpy() -> None:
    plain, turned = np.zeros((3, 4)), np.zeros((4, 3)).T
    same = dtype_pair(plain.dtype, plain.dtype)
    with measured_by("kernel"):
        assert worst_places(plain, turned, pair=same, most=2) is None
        assert worst_places(turned, plain, pair=same, most=2) is None
        narrow = plain.astype(np.float32)
        assert worst_places(plain, narrow, pair=dtype_pair(plain.dtype, narrow.dtype), most=2) is None
        whole = plain.astype(complex)
        assert worst_places(whole, whole, pair=dtype_pair(whole.dtype, whole.dtype), most=2) is None
        run = kernel.run(plain, narrow, pair=dtype_pair(plain.dtype, narrow.dtype), limit=None)
        assert run is not None, "two dtypes that float64 holds are cast"
        assert kernel.run(whole, whole, pair=dtype_pair(whole.dtype, whole.dtype), limit=None) is None
        long = np.zeros(3, np.int64)
        assert kernel.run(long, plain[0, :3], pair=dtype_pair(long.dtype, plain.dtype), limit=None) is None
        eighth = np.zeros(3, "float16").astype(">f2")
        assert kernel.knows(same)
        assert not kernel.knows(dtype_pair(plain.dtype, eighth.dtype))
    with measured_by("numpy"):
        assert worst_places(plain, plain, pair=same, most=2) is None
        assert not kernel.knows(same)


def test_kernel_knows_the_worst_place_of_pairs_that_need_a_second_look() -> None:
    ours, theirs = np.array([1e200, 2e200, 3e200]), np.array([1e200, 5e200, 3e200])
    with measured_by("kernel"):
        run = kernel.run(ours, theirs, pair=dtype_pair(ours.dtype, theirs.dtype), limit=None)
        assert run is not None
        assert (run.worst_at, run.totals().worst_at) == (1, 1)
        assert sum(run.totals().octaves.values()) == 1


def test_measurement_of_an_older_file_has_no_octaves_and_notes() -> None:
    data = measure_arrays(np.ones(2), np.zeros(2)).to_dict()
    del data["octaves"], data["notes"]
    found = Measurement.from_dict(data)
    assert (found.octaves, found.notes) == ((), ())
