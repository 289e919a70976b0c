"""Single cases with a story: the arithmetic that reprod_log 1.0.1 got wrong, and corners that are easy to get wrong."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from agreement import assert_same
from strategies_for_arrays import ALL, FLOATS, dtype
from ways import WAYS, measured_by

from reprod_log.errors import UsageError
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement


@pytest.fixture(autouse=True, params=WAYS)
def _each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every case holds for each way of measuring, and nothing may make numpy complain."""
    with warnings.catch_warnings(), measured_by(request.param):
        warnings.simplefilter("error")
        yield


def differences(measurement: Measurement) -> tuple[float, ...]:
    m = measurement
    return (m.max_abs, m.mean_abs, m.min_abs, m.rmse, m.max_rel, m.mean_rel, m.rel_l2, m.cosine_distance)


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [
        (np.array([0], np.uint8), np.array([1], np.uint8), 1),
        (np.array([-128], np.int8), np.array([0], np.int8), 128),
        (np.array([2**63 - 1]), np.array([-1]), 2**63),
        (np.array([2**63 - 1]), np.array([2**63 - 2]), 1),
        (np.array([2**64 - 1], np.uint64), np.array([-(2**63)]), 2**64 - 1 + 2**63),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64), 1),
        (np.array([2**53 + 1]), np.array([2.0**53]), 1),
        (np.array([-1]), np.array([-1 + 2.0**-30]), 2.0**-30),
        (np.array([2**53 + 1]), np.array([2.0**53 + 0j]), 1),
        (np.array([True]), np.array([False]), 1),
        (np.array([200], np.uint8), np.array([-56], np.int8), 256),
    ],
)
def test_integer_difference_is_exact_for_any_widths(left: np.ndarray, right: np.ndarray, distance: float) -> None:
    for a, b in ((left, right), (right, left)):
        got = measure_arrays(a, b)
        assert got.max_abs == got.min_abs == float(distance)
        assert got.differing == 1


def test_bool_difference_is_the_share_that_flipped_when_arrays_are_masks() -> None:
    got = measure_arrays(np.array([True, True, False, False]), np.array([True, False, False, False]))
    assert (got.differing, got.max_abs, got.mean_abs) == (1, 1.0, 0.25)
    assert got.worst is not None
    assert (got.worst.reference, got.worst.candidate) == (True, False)
    assert type(got.worst.reference) is bool


def test_float16_is_computed_wide_when_its_own_range_would_overflow() -> None:
    a = np.full(4096, 60000, np.float16)
    got = measure_arrays(a, -a)
    assert got.max_abs == got.mean_abs == 120000.0
    assert got.rel_l2 == 2.0


def test_float64_squares_do_not_overflow_when_values_are_huge() -> None:
    a = np.array([1e300, -2e300, 3e300])
    got = measure_arrays(a, a * (1 + 1e-9))
    assert got.rmse == pytest.approx(np.sqrt(14 / 3) * 1e291, rel=1e-6)
    assert got.rel_l2 == pytest.approx(1e-9, rel=1e-6)
    assert got.cosine_distance == pytest.approx(0, abs=1e-15)
    assert got.reference.rms == pytest.approx(np.sqrt(14 / 3) * 1e300)


def test_gradients_do_not_vanish_when_their_squares_underflow() -> None:
    small = np.array([1e-22, -3e-22, 2e-22], np.float32)
    got = measure_arrays(small, small * np.float32(1.5))
    assert got.rel_l2 == pytest.approx(0.5, rel=1e-6)
    tiny = np.array([1e-300, -3e-300])
    assert measure_arrays(tiny, tiny[::-1]).cosine_distance == pytest.approx(1.6)
    least = np.array([5e-324])
    assert measure_arrays(least, -least).rmse == 1e-323


def test_different_values_never_measure_zero_when_their_mean_underflows() -> None:
    a = np.zeros(1000)
    b = a.copy()
    b[7] = 5e-324
    got = measure_arrays(a, b)
    assert got.differing == 1
    assert min(got.max_abs, got.mean_abs, got.rmse) > 0


def test_infinities_are_equal_when_they_have_the_same_sign() -> None:
    a = np.array([np.inf, -np.inf, 1.0], np.float32)
    got = measure_arrays(a, a)
    assert got.identical
    assert differences(got) == (0.0,) * 8
    assert got.max_ulp == 0.0
    assert (got.reference.inf, got.reference.max) == (2, 1.0)
    opposite = measure_arrays(a, -a)
    assert (opposite.nonfinite_mismatched, opposite.comparable) == (2, 1)


@pytest.mark.parametrize("name", [n for n in FLOATS if np.isnan(dtype(n).type(np.nan))])
def test_nan_is_counted_and_kept_apart_when_it_is_on_one_or_both_sides(name: str) -> None:
    a = np.array([1, np.nan, 2, np.nan], np.float64).astype(dtype(name))
    b = np.array([1, np.nan, np.nan, 4], np.float64).astype(dtype(name))
    got = measure_arrays(a, b)
    assert (got.nan_both, got.nonfinite_mismatched, got.comparable, got.differing) == (1, 2, 1, 0)
    assert (got.reference.nan, got.candidate.nan) == (2, 2)
    assert not got.identical


def test_statistics_are_nan_when_no_element_is_comparable() -> None:
    got = measure_arrays(np.array([np.nan, 1.0]), np.array([np.nan, np.inf]), limit=1.0)
    assert all(math.isnan(value) for value in differences(got))
    assert got.max_ulp is not None
    assert math.isnan(got.max_ulp)
    assert got.share_beyond is not None
    assert math.isnan(got.share_beyond)
    assert got.worst is None


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_arrays_differ_by_nothing_and_say_so(shape: tuple[int, ...]) -> None:
    got = measure_arrays(np.zeros(shape), np.zeros(shape))
    assert got.count == 0
    assert differences(got) == (0.0,) * 8
    assert got.worst is None
    assert tuple(map(str, got.notes)) == ("both are empty",)


@pytest.mark.parametrize(("left", "right"), [((4, 1), (4,)), ((1,), ()), ((2, 3), (3, 2)), ((0,), (1,))])
def test_different_shapes_are_refused_and_both_named(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        measure_arrays(np.zeros(left), np.zeros(right))
    assert str(left) in str(caught.value)
    assert str(right) in str(caught.value)


@pytest.mark.parametrize("limit", [-1.0, math.nan])
def test_a_limit_that_is_no_size_is_refused(limit: float) -> None:
    with pytest.raises(UsageError, match="limit"):
        measure_arrays(np.zeros(1), np.zeros(1), limit=limit)


def test_only_larger_differences_are_beyond_a_limit() -> None:
    got = measure_arrays(np.zeros(4), np.array([0.0, 0.5, 0.5, 0.75]), limit=0.5)
    assert (got.beyond_limit, got.share_beyond) == (1, 0.25)


def test_worst_is_the_first_in_c_order_when_several_are_equally_bad() -> None:
    a = np.zeros((3, 4), order="F")
    b = np.zeros((3, 4))
    b[2, 0] = b[1, 3] = -2.0
    for block in (1, 5, 12):
        worst = measure_arrays(a, b, block=block).worst
        assert worst is not None
        assert (worst.index, worst.reference, worst.candidate) == ((1, 3), 0.0, -2.0)


def test_mixed_dtypes_are_compared_wide_and_it_is_said() -> None:
    got = measure_arrays(np.array([0.1], np.float32), np.array([0.1], np.float16))
    assert got.max_abs == float(np.float32(0.1)) - float(np.float16(0.1))
    assert tuple(map(str, got.notes)) == ("float32 against float16, compared in float64",)
    assert got.max_ulp is None
    assert (got.reference_dtype, got.candidate_dtype) == ("float32", "float16")


def test_byte_order_is_no_difference() -> None:
    a = np.array([1.5, -2.25], ">f4")
    got = measure_arrays(a, a.astype("<f4"))
    assert got.identical
    assert got.reference_dtype == "float32"
    assert (got.notes, got.max_ulp) == ((), 0.0)


@pytest.mark.parametrize(("name", "steps"), [("float64", 52), ("float32", 23), ("float16", 10), ("bfloat16", 7)])
def test_one_ulp_is_the_next_number_for_each_float(name: str, steps: int) -> None:
    one = np.ones(2, dtype(name))
    up = np.array([1, 1 + 2.0**-steps], np.float64).astype(dtype(name))
    got = measure_arrays(one, up)
    assert (got.max_ulp, got.mean_ulp) == (1.0, 0.5)


def test_ulp_distance_goes_through_zero_when_signs_differ() -> None:
    least = np.array([5e-324, 0.0])
    assert measure_arrays(least, np.array([-5e-324, -0.0])).max_ulp == 2.0
    largest = np.finfo(np.float32).max
    got = measure_arrays(np.array([largest]), np.array([-largest]))
    assert got.max_ulp == 2.0 * 0x7F7FFFFF


def test_std_keeps_its_digits_when_the_mean_is_large() -> None:
    a = 1e9 + np.arange(100_000.0) % 2
    got = measure_arrays(a, a + 1, block=1000)
    assert got.reference.std == pytest.approx(0.5, rel=1e-9)
    assert measure_arrays(np.full(7, 0.1), np.full(7, 0.3)).reference.std == 0.0


@pytest.mark.parametrize("scale", [1e-3, 1e-12, 1e-30])
def test_cosine_sees_a_right_angle_when_one_side_is_much_smaller(scale: float) -> None:
    a, b = np.array([1.0, 1.0, 0.0]), np.array([1.0, -1.0, 0.0]) * scale
    assert measure_arrays(a, b).cosine_distance == pytest.approx(1.0, abs=1e-12)
    assert measure_arrays(a, a * scale).cosine_distance == pytest.approx(0.0, abs=1e-12)


def test_cosine_is_one_when_one_side_is_zero_and_zero_when_both_are() -> None:
    zero, one = np.zeros(3), np.ones(3)
    assert measure_arrays(zero, one).cosine_distance == 1.0
    assert measure_arrays(one, zero).cosine_distance == 1.0
    assert measure_arrays(zero, -zero).cosine_distance == 0.0


def test_text_is_equal_or_not_and_nothing_different_has_a_size() -> None:
    a = np.array(["cat", "dog", "emu"])
    assert differences(measure_arrays(a, a.copy())) == (0.0,) * 8
    got = measure_arrays(a, np.array(["cat", "cow", "elk"]), limit=math.inf)
    assert all(math.isnan(value) for value in differences(got))
    assert (got.differing, got.beyond_limit) == (2, 2)
    assert got.worst is not None
    assert (got.worst.index, got.worst.reference, got.worst.candidate) == ((1,), "'dog'", "'cow'")
    assert "equality only" in str(got.notes[0])


@pytest.mark.parametrize(
    ("left", "right", "differing"),
    [
        (np.array([None]), np.array([None]), 0),
        (np.array([None, 1], object), np.array([None, 2], object), 1),
        (np.array([math.nan], object), np.array([math.nan], object), 1),
        (np.array(["1"]), np.array([1]), 1),
        (np.array(["a"]), np.array([b"a"]), 1),
        (np.array(["2021-01-01"], "M8[D]"), np.array(["2021-01-01T00"], "M8[h]"), 0),
        (np.array([(1, 2.0)], "i4,f8"), np.array([(1, 2.5)], "i4,f8"), 1),
    ],
)
def test_objects_are_compared_one_by_one(left: np.ndarray, right: np.ndarray, differing: int) -> None:
    got = measure_arrays(left, right)
    assert got.differing == differing
    assert (got.max_abs == 0.0) == (differing == 0)


def test_objects_that_hold_arrays_are_compared_as_a_whole() -> None:
    left, right = np.empty(2, object), np.empty(2, object)
    left[:] = [np.arange(3), np.arange(2)]
    right[:] = [np.arange(3), np.arange(3)]
    assert measure_arrays(left, right).differing == 1


def test_memory_maps_are_read_in_place(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((64, 33)).astype(np.float32)
    np.save(tmp_path / "a.npy", values)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert measure_arrays(mapped, values + 1) == measure_arrays(values, values + 1)


@pytest.mark.parametrize("name", ALL)
def test_summaries_of_both_sides_are_equal_when_the_arrays_are(name: str) -> None:
    a = np.linspace(1, 3, 5000).astype(dtype(name))
    got = measure_arrays(a, a.copy(), block=777)
    assert got.reference == got.candidate
    assert got.identical
    assert differences(got) == (0.0,) * 8


@pytest.mark.parametrize("name", ["float32", "float16", "complex64", "int64"])
def test_block_size_changes_nothing_but_the_last_digits(name: str) -> None:
    rng = np.random.default_rng(3)
    a = (rng.standard_normal(100_003) * 50).astype(dtype(name))
    b = (a + rng.standard_normal(a.size).astype(a.real.dtype) * 2).astype(a.dtype)
    if a.dtype.kind in "fc":
        a[[5, 70_000]] = np.nan
        b[[5, 99_999]] = np.inf
    whole = measure_arrays(a, b, limit=0.5)
    assert measure_arrays(a, b, limit=0.5) == whole
    for block in (1 << 10, 33_333, 1 << 17):
        assert_same(measure_arrays(a, b, limit=0.5, block=block), whole)


def test_arguments_are_left_alone() -> None:
    a = np.array([1.0, np.nan, np.inf])
    b = np.array([1.0, 2.0, np.inf])
    a.setflags(write=False)
    b.setflags(write=False)
    before = a.tobytes(), b.tobytes()
    measure_arrays(a, b)
    assert (a.tobytes(), b.tobytes()) == before


def test_half_precision_complex_numbers_are_measured_by_their_components() -> None:
    if not hasattr(ml_dtypes, "complex32"):
        pytest.skip("this ml_dtypes has no complex32")
    a = np.array([1 + 1j], np.complex64).astype(ml_dtypes.complex32)
    b = np.array([1 + (1 + 2.0**-10) * 1j], np.complex64).astype(ml_dtypes.complex32)
    got = measure_arrays(a, b)
    assert (got.max_abs, got.max_ulp, got.mean_ulp) == (2.0**-10, 1.0, 0.5)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "complex64"])
def test_large_transposed_matrices_measure_like_their_copies(name: str) -> None:
    rng = np.random.default_rng(5)
    a = (rng.standard_normal((301, 443)) * 30).astype(dtype(name))
    b = (rng.standard_normal((301, 443)) * 30).astype(dtype(name))
    turned = np.ascontiguousarray(b.T).T
    wanted = measure_arrays(a, b, block=1 << 14)
    for left, right in [(a, turned), (np.asfortranarray(a), turned), (np.asfortranarray(a), b), (a, turned[:, ::1])]:
        assert_same(measure_arrays(left, right, block=1 << 14), wanted)
    swapped = turned[::-1, ::-1]
    assert measure_arrays(a[::-1, ::-1], swapped).max_abs == wanted.max_abs
    if a.dtype.type.__module__ == "numpy":
        big_endian = turned.astype(turned.dtype.newbyteorder(), order="F")
        assert measure_arrays(a, big_endian).max_abs == wanted.max_abs
        assert measure_arrays(a, turned.astype(np.complex128)).max_abs == wanted.max_abs


@pytest.mark.parametrize("beside", [1.0, 1e300])
@pytest.mark.parametrize("scale", [1e-160, 1e-300, 1e160])
def test_pairs_keep_their_squares_when_a_value_of_another_size_has_no_partner(beside: float, scale: float) -> None:
    a, b = np.array([3.0, 4.0]) * scale, np.array([3.0, 4.0]) * scale * 1.5
    for left, right in ((np.append(a, beside), np.append(b, np.nan)), (np.append(a, np.inf), np.append(b, beside))):
        got = measure_arrays(left, right)
        assert got.rel_l2 == pytest.approx(0.5, rel=1e-12)
        assert got.rmse == pytest.approx(2.5 * scale / math.sqrt(2), rel=1e-12)
        assert got.cosine_distance == pytest.approx(0.0, abs=1e-14)
    lonely = measure_arrays(np.append(a, beside), np.append(b, np.nan))
    assert lonely.reference.rms == pytest.approx(math.hypot(5.0 * scale, beside) / math.sqrt(3), rel=1e-12)


def test_measurement_of_an_older_file_has_no_octaves_and_notes() -> None:
    data = measure_arrays(np.ones(2), np.zeros(2)).to_dict()
    del data["octaves"], data["notes"]
    found = Measurement.from_dict(data)
    assert (found.octaves, found.notes) == ((), ())
