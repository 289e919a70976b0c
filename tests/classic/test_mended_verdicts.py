"""Every wrong verdict of 1.0.1, mended. Each test is a row in docs/migrating.md."""

import math
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from reprod_log import ReprodDiffHelper
from reprod_log.errors import UnmatchedKeys, UsageError
from reprod_log.utils import check_print_diff

NAN, INF = math.nan, math.inf


def outcome(one: object, two: object, threshold: float = 1e-6, **options: bool) -> tuple[bool, dict[str, float]]:
    """Whether a pair passes by its largest difference, and what was computed."""
    helper = ReprodDiffHelper()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = helper.compare_info({"x": np.asarray(one)}, {"x": np.asarray(two)}, **options)
        result = helper.report(diff_method="max", diff_threshold=threshold, path=None)
    assert set(found["x"]) == {"mean", "max", "min"}
    return result.passed, found["x"]


@pytest.mark.parametrize("pair", [([NAN], [NAN]), ([1.0, NAN], [1.0, 1.0]), ([1.0, 2.0], [1.0, NAN])])
def test_nan_fails(pair: tuple[list[float], list[float]], capsys: pytest.CaptureFixture[str]) -> None:
    passed, found = outcome(*pair)
    assert not passed
    assert math.isnan(found["mean"])
    assert "note: NaN: " in capsys.readouterr().out


def test_nan_on_both_sides_passes_only_when_asked() -> None:
    assert outcome([NAN, 1.0], [NAN, 1.0], equal_nan=True)[0]
    assert outcome([NAN], [NAN], equal_nan=True)[0]
    assert not outcome([NAN, 1.0], [1.0, NAN], equal_nan=True)[0]


def test_equal_infinities_are_equal() -> None:
    passed, found = outcome(np.array([INF, -INF, 1.0], np.float32), np.array([INF, -INF, 1.0], np.float32))
    assert passed
    assert found["max"] == 0


def test_opposite_infinities_fail() -> None:
    assert not outcome([INF], [-INF])[0]


@pytest.mark.parametrize(
    ("one", "two", "difference"),
    [
        (np.uint8(0), np.uint8(1), 1),
        (np.int8(-128), np.int8(0), 128),
        (np.int64(2**63 - 1), np.int64(-1), 2**63),
        (np.uint64(2**64 - 1), np.uint64(0), 2**64 - 1),
        (np.int32(-(2**31)), np.int32(2**31 - 1), 2**32 - 1),
    ],
)
def test_integers_do_not_wrap_around(one: object, two: object, difference: int) -> None:
    passed, found = outcome(one, two)
    assert not passed
    assert found["max"] == pytest.approx(difference, rel=1e-15)


def test_bool_counts_what_differs() -> None:
    passed, found = outcome([True, False, True, True], [True, True, True, True])
    assert not passed
    assert found["mean"] == 0.25
    assert outcome([True, False], [True, False])[0]


def test_empty_equals_empty_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(np.zeros((0, 3)), np.zeros((0, 3)))[0]
    assert "note: both are empty" in capsys.readouterr().out
    assert not outcome(np.zeros((0, 3)), np.zeros((1, 3)))[0]


def test_text_and_objects_compare_by_equality() -> None:
    assert outcome(np.array(["a", "b"]), np.array(["a", "b"]))[0]
    assert not outcome(np.array(["a", "b"]), np.array(["a", "c"]))[0]
    assert outcome(np.array([None]), np.array([None]))[0]
    assert not outcome(np.array([None]), np.array([1.5], dtype=object))[0]
    assert not outcome(np.array(["1"]), np.array([1.0]))[0]


def test_float16_is_computed_wide() -> None:
    passed, found = outcome(np.full(70_000, 60_000, np.float16), np.full(70_000, -60_000, np.float16))
    assert not passed
    assert found["max"] == found["mean"] == 120_000


def test_bfloat16_is_a_number_and_not_its_bits() -> None:
    passed, found = outcome(np.array([1.0], ml_dtypes.bfloat16), np.array([1.0078125], ml_dtypes.bfloat16))
    assert not passed
    assert found["max"] == 0.0078125


def test_shapes_do_not_broadcast(capsys: pytest.CaptureFixture[str]) -> None:
    assert not outcome(np.zeros((90, 1)), np.zeros(90))[0]
    assert "note: shapes differ: [90, 1] and [90]" in capsys.readouterr().out
    assert not outcome(np.zeros((3, 1)), np.zeros(()))[0]


def test_one_element_equals_a_scalar() -> None:
    assert outcome(np.zeros(1), np.zeros(()))[0]
    assert outcome(np.zeros(()), np.zeros(1))[0]


def test_transposing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    assert outcome(matrix, matrix.T)[0]
    assert "note: the first was transposed: [2, 3] to [3, 2]" in capsys.readouterr().out


def test_methods_are_checked_each_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    helper = ReprodDiffHelper()
    helper.compare_info({"x": np.array([0.0, 0.0, 0.0, 3e-6])}, {"x": np.zeros(4)})
    result = helper.report(diff_method=["max", "mean"], path=None)
    assert not result.passed
    text = capsys.readouterr().out
    assert "max diff: check passed: False" in text
    assert "mean diff: check passed: True" in text


@pytest.mark.parametrize("method", [[], ["all"], "median", ["mean", "typo"]])
def test_wrong_method_is_a_clear_error(method: object) -> None:
    helper = ReprodDiffHelper()
    helper.compare_info({"x": np.zeros(1)}, {"x": np.zeros(1)})
    with pytest.raises(UsageError, match="diff_method must be"):
        helper.report(diff_method=method, path=None)


def test_missing_keys_of_both_sides_are_named_with_near_names() -> None:
    with pytest.raises(UnmatchedKeys) as caught:
        ReprodDiffHelper().compare_info({"fc.weight": np.ones(1), "a": 1}, {"fc.weights": np.ones(1), "a": 1})
    message = str(caught.value)
    assert "only in the first data: 'fc.weight' ('fc.weight' looks like 'fc.weights')" in message
    assert "only in the second data: 'fc.weights'" in message
    assert isinstance(caught.value, AssertionError)


def test_nested_key_of_one_side_fails(capsys: pytest.CaptureFixture[str]) -> None:
    helper = ReprodDiffHelper()
    helper.compare_info({"a": {"x": np.ones(1)}}, {"a": {"x": np.ones(1), "y": np.ones(1)}})
    assert not helper.report(path=None).passed
    assert "note: only in the second data" in capsys.readouterr().out


def test_empty_comparison_fails(capsys: pytest.CaptureFixture[str]) -> None:
    helper = ReprodDiffHelper()
    helper.compare_info({}, {})
    assert not helper.report(path=None).passed
    assert capsys.readouterr().out.splitlines()[-1].endswith("diff check failed")
    assert not check_print_diff({"outer": {}})


def test_second_report_does_not_touch_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = ReprodDiffHelper(), ReprodDiffHelper()
    first.compare_info({"x": np.ones(1)}, {"x": np.ones(1)})
    first.report(path=tmp_path / "first.log")
    before = (tmp_path / "first.log").read_text()
    capsys.readouterr()
    second.compare_info({"y": np.ones(1)}, {"y": np.zeros(1)})
    second.report(path=tmp_path / "second.log")
    assert (tmp_path / "first.log").read_text() == before
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_report_returns_whether_it_passed() -> None:
    helper = ReprodDiffHelper()
    helper.compare_info({"x": np.zeros(1)}, {"x": np.full(1, 1e-6)})
    at_the_limit = helper.report(diff_threshold=1e-6, path=None)
    assert at_the_limit.passed
    assert at_the_limit
    assert not helper.report(diff_threshold=0.9e-6, path=None)


def test_report_before_comparing_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="call compare_info"):
        ReprodDiffHelper().report(path=None)


def test_members_called_mean_max_min_are_not_taken_for_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    stats = {"mean": np.ones(1), "max": np.ones(1), "min": np.ones(1)}
    helper = ReprodDiffHelper()
    helper.compare_info({"stats": stats}, {"stats": {**stats, "max": np.zeros(1)}})
    assert not helper.report(path=None).passed
    assert "\t\tmean diff: check passed: False, value: 1.0" in capsys.readouterr().out


def test_tiny_differences_are_not_rounded_away() -> None:
    # The mean underflows in float32; shown as 0 it would pass a threshold of 0.
    one = np.zeros(1000, np.float32)
    one[0] = np.float32(1e-44)
    helper = ReprodDiffHelper()
    found = helper.compare_info({"x": one}, {"x": np.zeros(1000, np.float32)})
    assert found["x"]["mean"] > 0
    assert not helper.report(diff_threshold=0, path=None).passed
