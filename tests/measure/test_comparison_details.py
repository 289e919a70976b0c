"""Details of a comparison: limits, what is kept for pictures and how much of it, who measures, near names."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from reprod_log import Recording
from reprod_log.errors import RecordingError
from reprod_log.measure import comparison
from reprod_log.measure.comparison import Compared, Task, measure, measure_batch, measure_pair
from reprod_log.pairing import Pair, Pairing, match
from reprod_log.recording import Array, Entry, entry_of


def pair_of(reference: Any, candidate: Any, key: str = "x") -> Pair:
    return Pair(entry_of(key, np.asarray(reference)), entry_of(key, np.asarray(candidate)))


def kept(reference: Any, candidate: Any, limit: float | None = None, **asked: int) -> tuple[int, int]:
    """How many samples and how many of the worst elements a pair keeps."""
    wanted = {"samples": 2, "samples_beyond": 5, "worst": 3, **asked}
    (row,) = measure_batch([Task(pair_of(reference, candidate), limit, **wanted)])
    return len(row.samples), len(row.worst_elements)


ONES = np.ones(10)


def test_more_is_kept_of_a_pair_with_something_beyond_its_limit() -> None:
    moved = ONES + 1e-3
    assert kept(ONES, ONES) == (2, 0)
    assert kept(ONES, moved, 1.0) == (2, 3)
    assert kept(ONES, moved, 1e-4) == (5, 3)
    # Without a limit a difference well above rounding counts.
    assert kept(ONES, moved) == (5, 3)
    assert kept(ONES, ONES + 1e-8) == (2, 3)
    assert kept(ONES, ONES + 1e-8, 1e-9) == (5, 3)
    lost = ONES.copy()
    lost[4] = np.nan
    assert kept(ONES, lost, 1.0) == (5, 1)
    assert kept(ONES, moved, samples=7) == (7, 3)


def test_difference_worth_a_picture_begins_beyond_a_millionth() -> None:
    million = np.array([2.0**20, 0.0])
    with mock.patch.object(comparison, "_WORTH_A_PICTURE", 2.0**-20):
        assert kept(million, [2.0**20 + 1, 0.0], samples=1, samples_beyond=2)[0] == 1
        assert kept(million, [2.0**20 + 1.5, 0.0], samples=1, samples_beyond=2)[0] == 2


def test_nothing_is_kept_that_was_not_asked_for() -> None:
    assert kept(ONES, ONES + 1, samples=0, samples_beyond=0, worst=0) == (0, 0)
    assert kept(ONES, ONES + 1, worst=1) == (5, 1)
    with (
        mock.patch.object(comparison, "samples_of") as sampling,
        mock.patch.object(comparison, "worst_elements") as look,
    ):
        measure_batch([Task(pair_of(ONES, ONES + 1))])
        sampling.assert_not_called()
        look.assert_not_called()


def test_worst_of_large_pairs_are_looked_for_only_when_something_is_beyond() -> None:
    with mock.patch.object(comparison, "_SMALL", 10):
        assert kept(ONES, ONES + 1e-8) == (2, 3)
    with mock.patch.object(comparison, "_SMALL", 9):
        assert kept(ONES, ONES + 1e-8) == (2, 0)
        assert kept(ONES, ONES + 1e-3) == (5, 3)


def many(count: int, difference: float = 1.0, size: int = 300) -> Pairing:
    return Pairing(tuple(pair_of(np.zeros(size), np.full(size, difference), f"x{place}") for place in range(count)))


def samples(pairing: Pairing, **options: Any) -> list[int]:
    return [len(row.samples) for row in measure(pairing, elements=True, **options).rows]


def test_pairs_share_the_samples() -> None:
    with mock.patch.object(comparison, "_SAMPLES_IN_ALL", 100):
        assert samples(many(2, 0.0)) == [50, 50]
        assert samples(many(3, 0.0)) == [33, 33, 33]
        assert samples(many(1, 0.0)) == [100]
        assert samples(many(60, 0.0)) == [4] * 60
    assert samples(many(1, 0.0)) == [200]
    assert samples(many(0)) == []


def test_first_pairs_beyond_their_limit_keep_a_full_picture_while_there_is_room() -> None:
    with mock.patch.object(comparison, "_SAMPLES_IN_ALL", 400):
        # Four of 100 each; one beyond its limit takes 100 more out of 400 as long as 200 are left.
        assert samples(many(4)) == [200, 200, 200, 100]
        # What keeps no more than its share takes nothing away.
        small = Pairing((*many(3, 0.0).pairs, *many(1).pairs))
        assert samples(small) == [100, 100, 100, 200]
    with mock.patch.object(comparison, "_SAMPLES_IN_ALL", 399):
        assert samples(many(4)) == [200, 200, 99, 99]
    thin = measure(many(1), elements=True).rows[0]
    assert thin.samples[0] == (0.0, 1.0)


def test_pair_with_one_sample_more_than_its_share_takes_one_away() -> None:
    with mock.patch.multiple(comparison, _SAMPLES_IN_ALL=200, _MOST_SAMPLES=200, _FEWEST_SAMPLES=199):
        assert samples(many(2)) == [200, 199]
        assert samples(Pairing((*many(1, 0.0).pairs, *many(1).pairs))) == [199, 200]


def test_limit_is_asked_for_every_pair_with_elements_and_without() -> None:
    pairing = many(2)
    limits = {"x0": 0.5, "x1": 2.0}
    for elements in (True, False):
        rows = measure(pairing, elements=elements, limit_for=lambda pair: limits[str(pair.reference.key)]).rows
        assert [row.measurement and row.measurement.limit for row in rows] == [0.5, 2.0]
        assert [row.measurement and row.measurement.beyond_limit for row in rows] == [300, 0]


def test_limit_holds_for_large_pairs_too() -> None:
    size = 1 << 17
    (row,) = measure_batch([Task(pair_of(np.zeros(size), np.ones(size)), 0.5)])
    assert row.measurement is not None
    assert (row.measurement.limit, row.measurement.beyond_limit) == (0.5, size)


class Elsewhere(Executor):
    """Does the work on copies that went through bytes, as another process would."""

    def map(self, work: Callable[..., Any], *batches: Iterable[Any], **_: Any) -> Iterator[Any]:  # type: ignore[override]
        return iter([pickle.loads(pickle.dumps(work))(pickle.loads(pickle.dumps(one))) for one in batches[0]])


def test_pairs_go_to_an_executor_by_value() -> None:
    local: list[int] = []

    def read() -> Array:
        local.append(1)
        return np.arange(3.0)

    def entry(key: str) -> Entry:
        return replace(entry_of(key, np.zeros(3)), read=read, hash="")

    for pair in (
        Pair(entry("x"), entry_of("x", np.arange(3.0))),
        Pair(entry_of("x", np.arange(3.0)), entry("x")),
    ):
        (row,) = measure(Pairing((pair,)), executor=Elsewhere()).rows
        assert row.measurement is not None
        assert row.measurement.identical
    assert local


def test_who_measures_is_whom_the_caller_names() -> None:
    with mock.patch.object(comparison, "spread", wraps=comparison.spread) as spreading:
        measure(many(1), threads=2)
        measure(many(1), executor=Elsewhere())
        measure(many(1))
    asked = [(call.kwargs["threads"], type(call.kwargs["executor"])) for call in spreading.call_args_list]
    assert asked == [(2, type(None)), (None, Elsewhere), (None, type(None))]


def summary_only(key: str, dtype: str = "float32") -> Entry:
    return replace(entry_of(key, np.ones(3)), detail="summary", hash="", dtype=dtype, meta={})


def test_pairs_without_values_stand_in_their_place_among_the_others() -> None:
    tasks = [
        Task(pair_of(ONES, ONES, "a")),
        Task(Pair(summary_only("b"), summary_only("b"))),
        Task(pair_of(ONES, ONES[:3], "c")),
        Task(pair_of(np.zeros(1 << 17), np.zeros(1 << 17), "d")),
        Task(pair_of(ONES, ONES, "e")),
    ]
    rows = measure_batch(tasks)
    assert [row.key for row in rows] == ["a", "b", "c", "d", "e"]
    assert str(rows[2].incomparable) == "shapes differ: reference [10], candidate [3]"
    assert [row.incomparable for row in (rows[0], rows[3])] == [None, None]


@pytest.mark.parametrize(
    ("one", "other"), [("str", "float32"), ("float32", "str"), ("object", "int64"), ("int8", "object")]
)
def test_text_and_objects_compare_with_their_own_kind_only(one: str, other: str) -> None:
    values = {"str": np.array(["a"]), "object": np.array([None], object)}
    row = measure_pair(pair_of(values.get(one, np.ones(1, "float32")), values.get(other, np.ones(1, "float32"))))
    assert row.measurement is None
    assert str(row.incomparable).startswith("kinds differ: reference ")
    estimated = measure_pair(Pair(summary_only("x", one), summary_only("x", other)))
    assert str(estimated.incomparable) == f"kinds differ: reference {one}, candidate {other}"


def test_numbers_of_other_dtypes_are_compared() -> None:
    for one, other in (("float32", "float64"), ("int32", "float32"), ("bool", "uint8")):
        row = measure_pair(pair_of(np.ones(2, one), np.ones(2, other)))
        assert (row.incomparable, row.measurement and row.measurement.differing) == (None, 0)


def test_estimate_that_could_be_made_gives_no_reason() -> None:
    row = measure_pair(Pair(replace(summary_only("x"), hash="a"), replace(summary_only("x"), hash="a")))
    assert row.measurement is None or row.incomparable is None
    assert (row.samples, row.worst_elements) == ((), ())


def test_entry_that_cannot_be_read_says_why() -> None:
    def read() -> Array:
        raise RecordingError("the file is gone")

    broken = replace(entry_of("x", np.ones(2)), read=read, hash="")
    assert str(measure_pair(Pair(broken, entry_of("x", np.ones(2)))).incomparable) == "the file is gone"


def test_row_says_how_sure_its_pair_is_and_of_what_layer() -> None:
    layer = replace(entry_of("x", ONES), layer_type="Linear")
    row = measure_pair(Pair(layer, entry_of("y", ONES), "order", 0.8))
    assert (row.how, row.confidence, row.layer_type, row.candidate_key) == ("order", 0.8, "Linear", "y")
    assert Compared.from_dict(row.to_dict()) == row


@pytest.mark.parametrize(("most", "hinted"), [(6, True), (5, False)])
def test_names_that_look_alike_are_looked_for_among_few(most: int, hinted: bool) -> None:
    ours = Recording.from_arrays({"weight_a": np.ones(1), "bias_a": np.ones(1)})
    theirs = Recording.from_arrays({"weight_b": np.ones(1), "bias_b": np.ones(1), "zzz": np.ones(1)})
    with mock.patch.object(comparison, "_MOST_HINTS", most):
        unmatched = measure(match(ours, theirs)).unmatched
    near = {one.key: one.near for one in unmatched}
    assert near["weight_a"] == (("weight_b",) if hinted else ())
    assert near["bias_b"] == (("bias_a",) if hinted else ())
    assert [one.side for one in unmatched] == ["reference"] * 2 + ["candidate"] * 3
