"""Single elements kept for pictures: samples at fixed places, and the ones that differ most."""

import json
import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_for_arrays import array_pairs
from ways import WAYS, measured_by

from reprod_log import Recording
from reprod_log.measure.comparison import Compared, Comparison, measure
from reprod_log.measure.elements import samples_of, worst_elements
from reprod_log.pairing import match

RNG = np.random.default_rng(3)


def compared(reference: dict[str, np.ndarray], candidate: dict[str, np.ndarray], **options: object) -> Comparison:
    return measure(
        match(Recording.from_arrays(reference), Recording.from_arrays(candidate)),
        **options,  # type: ignore[arg-type]
    )


def test_samples_are_evenly_spaced_and_hold_both_ends() -> None:
    values = np.arange(1000, dtype=np.float32)
    found = samples_of(values, values + 1, most=5)
    assert found == ((0.0, 1.0), (250.0, 251.0), (500.0, 501.0), (749.0, 750.0), (999.0, 1000.0))


def test_samples_of_a_small_pair_are_all_of_it() -> None:
    assert samples_of(np.array([1, 2, 3]), np.array([1, 2, 4]), most=10) == ((1.0, 1.0), (2.0, 2.0), (3.0, 4.0))


def test_samples_of_a_transposed_array_follow_its_own_order() -> None:
    array = np.arange(12.0).reshape(3, 4)
    assert samples_of(array.T, np.ascontiguousarray(array.T), most=12) == tuple((v, v) for v in array.T.ravel())


@pytest.mark.parametrize("array", [np.array([1j]), np.array(["a"]), np.array([None]), np.zeros(0)])
def test_what_has_no_place_on_an_axis_gives_no_samples(array: np.ndarray) -> None:
    assert samples_of(array, array, most=10) == ()


def test_half_precision_gives_samples_as_numbers() -> None:
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    assert samples_of(array, array, most=10) == ((1.5, 1.5), (-2.0, -2.0))


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    with measured_by(request.param):
        yield


@settings(max_examples=150, deadline=None)
@given(array_pairs(), st.integers(1, 20))
@pytest.mark.parametrize("way", ["kernel", "plain kernel"])
def test_the_kernel_finds_the_same_worst_elements_as_numpy(
    way: str, pair: tuple[np.ndarray, np.ndarray], most: int
) -> None:
    with measured_by("numpy"):
        wanted = worst_elements(*pair, most=most)
    with measured_by(way):
        assert repr(worst_elements(*pair, most=most)) == repr(wanted)


@pytest.mark.parametrize("size", [1, 7, 40_000, 100_000])
@pytest.mark.usefixtures("way")
def test_worst_elements_are_those_of_a_full_sort(size: int) -> None:
    reference = RNG.normal(size=size).astype(np.float32)
    candidate = (reference + RNG.normal(size=size).astype(np.float32) * 1e-3).astype(np.float32)
    apart = np.abs(reference.astype(np.float64) - candidate.astype(np.float64))
    wanted = np.argsort(-apart, kind="stable")[:6]
    assert [one.index for one in worst_elements(reference, candidate, most=6)] == [(int(place),) for place in wanted]


@pytest.mark.usefixtures("way")
def test_ties_among_the_worst_go_to_the_earlier_place() -> None:
    reference, candidate = np.zeros(100_000), np.ones(100_000)
    assert [one.index for one in worst_elements(reference, candidate, most=3)] == [(0,), (1,), (2,)]


@pytest.mark.usefixtures("way")
def test_equal_elements_are_never_among_the_worst() -> None:
    found = worst_elements(np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 9]]), most=5)
    assert [(one.index, one.reference, one.candidate) for one in found] == [((1, 1), 4, 9)]


@pytest.mark.usefixtures("way")
def test_nan_without_its_equal_comes_first_and_equal_infinities_not_at_all() -> None:
    reference = np.array([math.inf, 1.0, 2.0, math.nan])
    candidate = np.array([math.inf, 50.0, math.nan, 1.0])
    assert [one.index for one in worst_elements(reference, candidate, most=4)] == [(2,), (3,), (1,)]


@pytest.mark.usefixtures("way")
def test_large_integers_are_ranked_exactly() -> None:
    top = np.iinfo(np.int64).max
    found = worst_elements(np.array([top, top]), np.array([top - 1, top - 2]), most=2)
    assert [one.index for one in found] == [(1,), (0,)]


def test_elements_are_kept_only_when_asked_for() -> None:
    pair = {"x": np.ones(5)}, {"x": np.ones(5) * 2}
    assert compared(*pair).rows[0].samples == ()
    assert compared(*pair).rows[0].worst_elements == ()
    kept = compared(*pair, elements=True).rows[0]
    assert len(kept.samples) == 5
    assert len(kept.worst_elements) == 5


def test_identical_pairs_have_no_worst_elements() -> None:
    assert compared({"x": np.ones(5)}, {"x": np.ones(5)}, elements=True).rows[0].worst_elements == ()


def test_samples_of_many_pairs_share_a_budget_and_the_first_wrong_one_gets_a_full_picture() -> None:
    reference = {f"x{place}": RNG.normal(size=300) for place in range(3000)}
    candidate = dict(reference) | {"x7": reference["x7"] + 1}
    rows = compared(reference, candidate, elements=True, limit_for=lambda pair: 1e-6).rows
    assert {len(row.samples) for row in rows if row.key != "x7"} == {10}
    assert len(rows[7].samples) == 200


def test_elements_survive_json() -> None:
    reference = {"x": np.array([1.0, 2.0]), "z": np.array([1 + 2j]), "n": np.array([math.nan])}
    candidate = {"x": np.array([1.0, 2.5]), "z": np.array([2 + 2j]), "n": np.array([1.0])}
    rows = compared(reference, candidate, elements=True).rows
    assert rows[1].worst_elements[0].candidate == 2 + 2j
    for row in rows[:2]:
        assert Compared.from_dict(json.loads(json.dumps(row.to_dict()))) == row


def test_rows_written_before_there_were_elements_are_still_read() -> None:
    row = compared({"x": np.ones(2)}, {"x": np.ones(2)}).rows[0]
    old = {name: value for name, value in row.to_dict().items() if name not in ("samples", "worst_elements")}
    assert Compared.from_dict(old) == row


@pytest.mark.parametrize(("error", "found"), [(1e-9, 0), (1e-3, 8)])
def test_worst_elements_of_a_large_pair_without_a_limit_are_sought_only_beyond_rounding(
    error: float, found: int
) -> None:
    values = RNG.normal(size=70_000)
    row = compared({"x": values}, {"x": values * (1 + error)}, elements=True).rows[0]
    assert len(row.worst_elements) == found
