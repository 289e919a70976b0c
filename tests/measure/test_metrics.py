"""The contract that every metric keeps, and how metrics are found."""

from __future__ import annotations

import math
import types
from importlib import metadata

import numpy as np
import pytest

from reprod_log import align
from reprod_log.errors import UsageError
from reprod_log.measure import metrics
from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.measurement import Measurement

# Made so that each metric has a value of its own.
PAIR = measure_arrays(
    np.array([3.0, 4.0, -1.0, np.nan], np.float32), np.array([3.25, 6.0, -1.125, 5.0], np.float32), limit=0.25
)
VALUES = {
    "max_abs": 2.0,
    "mean_abs": 2.375 / 3,
    "min_abs": 0.125,
    "max_rel": 0.5,
    "mean_rel": (0.25 / 3 + 0.5 + 0.125) / 3,
    "rmse": math.sqrt(4.078125 / 3),
    "rel_l2": math.sqrt(4.078125 / 26),
    "cosine": 1 - 34.875 / math.sqrt(26 * 47.828125),
    "max_ulp": 4194304.0,
    "mean_ulp": (1048576 + 4194304 + 1048576) / 3,
    "share_beyond": 1 / 3,
    "nonfinite": 1.0,
    "differing": 3.0,
}
NAMES = sorted(VALUES)
OF_ROWS = ("kl", "top1", "top5")


@pytest.mark.parametrize("name", [*NAMES, *OF_ROWS])
def test_a_metric_says_what_when_and_why(name: str) -> None:
    found = metrics.metric(name)
    assert found.name == name
    assert found.summary.endswith(".")
    assert "When: " in found.description
    assert "Why: " in found.description


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_has_the_value_of_its_definition(name: str) -> None:
    value = metrics.metric(name).value(PAIR)
    assert type(value) is float
    assert value == pytest.approx(VALUES[name], rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_is_zero_when_both_sides_are_identical(name: str) -> None:
    a = np.arange(5.0)
    assert metrics.metric(name).value(measure_arrays(a, a, limit=0.0)) == 0.0


@pytest.mark.parametrize("name", [n for n in NAMES if n != "nonfinite"])
def test_a_metric_passes_no_limit_when_nothing_is_comparable(name: str) -> None:
    nothing = measure_arrays(np.array([np.nan]), np.array([1.0]), limit=1.0)
    assert not metrics.metric(name).value(nothing) <= math.inf


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("nonfinite", "differing", "share_beyond")])
def test_a_metric_passes_no_limit_when_text_differs(name: str) -> None:
    text = measure_arrays(np.array(["a", "b"]), np.array(["a", "c"]), limit=1.0)
    assert not metrics.metric(name).value(text) <= math.inf


@pytest.mark.parametrize("name", ["max_ulp", "mean_ulp", "share_beyond"])
def test_a_metric_passes_no_limit_when_it_does_not_exist_for_the_pair(name: str) -> None:
    mixed = measure_arrays(np.zeros(2, np.float32), np.zeros(2, np.float64))
    assert not metrics.metric(name).value(mixed) <= math.inf


def test_names_are_those_of_the_table_in_order() -> None:
    assert metrics.names() == tuple(sorted([*NAMES, *OF_ROWS]))


def test_an_unknown_name_is_refused_and_near_names_are_given() -> None:
    with pytest.raises(UsageError, match="'max_abs'"):
        metrics.metric("maxabs")
    with pytest.raises(UsageError, match="rel_l2"):
        metrics.metric("zzz")


def _add_entry_point(monkeypatch: pytest.MonkeyPatch, name: str, module: types.ModuleType) -> None:
    class Point:
        def __init__(self) -> None:
            self.name = name

        def load(self) -> types.ModuleType:
            return module

    def points(*, group: str) -> list[Point]:
        assert group == "reprod_log.metrics"
        return [Point()]

    monkeypatch.setattr(metadata, "entry_points", points)
    metrics.metric.cache_clear()


def test_another_package_adds_a_metric_through_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("theirs", "Twice the largest difference.")

    def value(measurement: Measurement) -> float:
        return 2 * measurement.max_abs

    module.value = value  # type: ignore[attr-defined]
    _add_entry_point(monkeypatch, "twice", module)
    assert "twice" in metrics.names()
    assert metrics.metric("twice").value(PAIR) == 4.0
    metrics.metric.cache_clear()


def test_another_package_cannot_take_over_a_name_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("theirs", "Always passes.")
    module.value = lambda measurement: 0.0  # type: ignore[attr-defined]
    _add_entry_point(monkeypatch, "max_abs", module)
    assert metrics.metric("max_abs").value(PAIR) == 2.0
    metrics.metric.cache_clear()


def test_an_entry_point_without_a_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _add_entry_point(monkeypatch, "broken", types.ModuleType("theirs", "No function."))
    with pytest.raises(UsageError, match="broken"):
        metrics.metric("broken")
    metrics.metric.cache_clear()


def test_entry_points_are_looked_up_in_the_documented_group() -> None:
    assert list(metadata.entry_points(group=metrics.GROUP)) == []
    assert metrics.GROUP == "reprod_log.metrics"


# ---- metrics of whole rows ------------------------------------------------------------------------------------------

LOGITS = np.array([[2.0, 1.0, 0.0, -1.0, -2.0, -3.0], [0.0, 3.0, 1.0, 2.0, -np.inf, -1.0]])


def test_divergence_is_that_of_the_probabilities():
    theirs = LOGITS + np.array([[0.0, 0.5, 0, 0, 0, 0], [7.0] * 6])
    ours, other = (np.exp(one) / np.exp(one).sum(-1, keepdims=True) for one in (LOGITS, theirs))
    expected = (ours[0] * np.log(ours[0] / other[0])).sum()
    found = metrics.rows_measured(LOGITS, theirs, ["kl", "max_abs"])
    # The second row has only moved as a whole, which its probabilities do not see.
    assert found == {"kl": pytest.approx(expected, rel=1e-12)}


def test_divergence_is_infinite_where_the_candidate_forbids_what_the_reference_expects():
    theirs = np.where(LOGITS == 3.0, -np.inf, LOGITS)
    assert metrics.rows_measured(LOGITS, theirs, ["kl"])["kl"] == math.inf


def test_disagreement_is_the_share_of_rows_with_other_largest_elements():
    theirs = LOGITS.copy()
    theirs[0, :2] = theirs[0, 1::-1]
    assert metrics.rows_measured(LOGITS, theirs, ["top1", "top5"]) == {"top1": 0.5, "top5": 0.0}
    theirs[1, 4] = 5.0
    assert metrics.rows_measured(LOGITS, theirs, ["top1", "top5"]) == {"top1": 1.0, "top5": 0.5}


@pytest.mark.parametrize("name", OF_ROWS)
@pytest.mark.parametrize(
    "wrong",
    [np.full((2, 6), np.nan), np.full((2, 6), np.inf), np.full((2, 6), -np.inf), np.ones((2, 6), int), np.ones(())],
    ids=["nan", "inf", "nothing allowed", "integers", "a number"],
)
def test_what_is_no_logits_has_no_such_metric_and_never_passes(name, wrong):
    assert math.isnan(metrics.rows_measured(wrong, wrong, [name])[name])
    assert math.isnan(metrics.metric(name).value(measure_arrays(LOGITS, LOGITS, limit=None)))


@pytest.mark.parametrize(("limit", "passes"), [("kl:0.2", True), ("kl:0.01", False), ("top1:0", True)])
def test_limits_of_rows_judge_recordings(limit, passes, tmp_path):
    theirs = LOGITS + np.array([[0.0, 0.5, 0, 0, 0, 0], [7.0] * 6])
    for name, array in (("ours", LOGITS), ("theirs", theirs)):
        np.savez(tmp_path / f"{name}.npz", logits=array)
    found = align(tmp_path / "ours.npz", tmp_path / "theirs.npz", limits=limit)
    assert found.passed == passes, str(found)
    again = type(found).from_dict(found.to_dict())
    assert again.comparison.rows[0].measurement == found.comparison.rows[0].measurement
