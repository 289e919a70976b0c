"""A comparison of pairs of every kind: its rows, what could not be measured, and that it survives being written."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprod_log import Recording
from reprod_log.errors import RecordingError
from reprod_log.measure.comparison import Compared, Comparison, Task, measure, measure_batch, measure_pair
from reprod_log.pairing import Pair, Pairing, match
from reprod_log.progress import shown
from reprod_log.recording import Array, Entry, Key, entry_of
from reprod_log.recording.sketch import SketchOrder, sketch_of

REFERENCE = {
    "same": np.arange(6.0).reshape(2, 3),
    "moved": np.arange(6.0).reshape(2, 3),
    "shape": np.ones((2, 3)),
    "kind": np.array(["a", "b"]),
    "words": np.array(["a", "b"]),
    "single": np.array(1.0),
    "other_name": np.ones(1),
}
CANDIDATE = {
    "same": np.arange(6.0).reshape(2, 3),
    "moved": np.arange(6.0).reshape(2, 3) + np.array([0, 0, 2.0]),
    "shape": np.ones((3, 2)),
    "kind": np.ones(2),
    "words": np.array(["a", "x"]),
    "single": np.array([1.0]),
    "other_nama": np.ones(1),
}


def comparison(**options: object) -> Comparison:
    pairing = match(Recording.from_arrays(REFERENCE), Recording.from_arrays(CANDIDATE))
    return measure(pairing, limit_for=lambda pair: 1.0, **options)  # type: ignore[arg-type]


def test_rows_say_what_was_compared() -> None:
    rows = {row.key: row for row in comparison().rows}
    assert list(rows) == [key for key in REFERENCE if key != "other_name"]
    moved = rows["moved"]
    assert (moved.candidate_key, moved.how, moved.confidence) == ("moved", "name", 1.0)
    assert (moved.view, moved.layer_type) == (None, "")
    assert (moved.reference_shape, moved.candidate_shape) == ((2, 3), (2, 3))
    assert (moved.reference_dtype, moved.candidate_dtype) == ("float64", "float64")
    assert moved.measurement is not None
    assert (moved.measurement.max_abs, moved.measurement.beyond_limit, moved.measurement.limit) == (2.0, 2, 1.0)
    assert str(rows["single"].view) == "(1,) and () are the same single number"
    assert rows["single"].measurement is not None
    assert rows["words"].measurement is not None
    assert rows["words"].measurement.differing == 1


def test_what_could_not_be_measured_says_why() -> None:
    rows = {row.key: row for row in comparison().rows}
    assert rows["shape"].measurement is None
    assert str(rows["shape"].incomparable) == (
        "shapes differ: reference [2, 3], candidate [3, 2] (the reverse: a transposed weight or gradient?)"
    )
    assert rows["kind"].measurement is None
    assert str(rows["kind"].incomparable) == "kinds differ: reference str, candidate float64"
    assert all(row.incomparable is None for row in rows.values() if row.measurement is not None)
    other = Recording.from_arrays({"shape": np.ones((4, 2))})
    (row,) = measure(match(Recording.from_arrays({"shape": np.ones((2, 3))}), other)).rows
    assert str(row.incomparable) == "shapes differ: reference [2, 3], candidate [4, 2]"


def test_unmatched_entries_know_names_that_look_like_theirs() -> None:
    assert [(one.key, one.side, one.near) for one in comparison().unmatched] == [
        ("other_name", "reference", ("other_nama",)),
        ("other_nama", "candidate", ("other_name",)),
    ]


def test_elements_are_kept_when_asked_for() -> None:
    rows = {row.key: row for row in comparison(elements=True).rows}
    assert rows["moved"].samples == tuple(zip(REFERENCE["moved"].flat, CANDIDATE["moved"].flat, strict=True))
    worst = rows["moved"].worst_elements
    assert [(one.index, one.reference, one.candidate) for one in worst] == [((0, 2), 2.0, 4.0), ((1, 2), 5.0, 7.0)]
    assert rows["same"].worst_elements == ()
    assert all(row.samples == () and row.worst_elements == () for row in comparison().rows)


@pytest.mark.parametrize("elements", [False, True])
def test_comparison_survives_when_written_and_read(elements: bool) -> None:
    found = comparison(elements=elements)
    found = Comparison(found.rows, found.unmatched, ("a note",), ("block.act",))
    data = found.to_dict()
    assert repr(Comparison.from_dict(data)) == repr(found)
    assert set(data) == {"rows", "unmatched", "notes", "structural"}
    assert data["notes"] == ["a note"]
    del data["notes"], data["structural"]
    for one in data["unmatched"]:
        del one["near"]
    bare = Comparison.from_dict(data)
    assert (bare.notes, bare.structural) == ((), ())
    assert bare.unmatched[0].near == ()


def test_progress_reports_every_byte() -> None:
    reported: list[tuple[int, int]] = []
    with shown(lambda what, done, total: reported.append((done, total))):
        comparison()
    assert reported[-1][0] == reported[-1][1] > 0
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)


def test_one_pair_is_measured_as_among_others() -> None:
    pairing = match(*(Recording((entry_of("moved", side["moved"]),)) for side in (REFERENCE, CANDIDATE)))
    alone = measure_pair(pairing.pairs[0], limit=1.0)
    among = next(row for row in comparison().rows if row.key == "moved")
    assert repr(alone) == repr(among)


def test_row_says_how_its_pair_was_found() -> None:
    ours, theirs = (Recording.from_arrays({name: np.ones(2)}) for name in "ab")
    pairing = match(ours, theirs, rename={"a": "b"})
    (row,) = measure(pairing).rows
    assert (row.key, row.candidate_key, row.how) == ("a", "b", "rename")


def test_modules_that_only_one_side_has_are_listed_once() -> None:
    zero = {"step0/gradient/w:raw": np.zeros(3), "step1/gradient/w:raw": np.zeros(3), "x": np.ones(1)}
    found = measure(match(Recording.from_arrays(zero), Recording.from_arrays({"x": np.ones(1)})))
    assert found.structural == ("w",)


class Counting(ThreadPoolExecutor):
    """Says how much it was given."""

    given = 0

    def submit(self, *args: Any, **options: Any) -> Any:
        self.given += 1
        return super().submit(*args, **options)


def test_executor_that_is_given_measures_everything() -> None:
    with Counting(1) as executor:
        found = comparison(executor=executor)
    assert executor.given > 0
    assert repr(found) == repr(comparison(threads=1)) == repr(comparison(threads=2))


def test_sketches_in_other_orders_are_incomparable_and_say_what_to_do() -> None:
    array = np.arange(12.0).reshape(3, 4)
    sides = []
    for form in (SketchOrder(), SketchOrder((1, 0))):
        found = sketch_of(array, form=form)
        meta = {"summary": found.summary, "sketch": found.facts()}
        sides.append(
            Entry(Key.parse("x"), array.shape, "float64", lambda one=found: one.values, detail="sketch", meta=meta)
        )
    row = measure_pair(Pair(*sides))
    assert row.measurement is None
    assert str(row.incomparable) == (
        "the two were sketched in different orders of their elements, which cannot be changed afterwards. "
        "Record one of the two in full."
    )


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


def test_nothing_is_kept_that_was_not_asked_for() -> None:
    assert kept(ONES, ONES + 1, samples=0, samples_beyond=0, worst=0) == (0, 0)
    assert kept(ONES, ONES + 1, worst=1) == (5, 1)


def test_limit_is_asked_for_every_pair_with_elements_and_without() -> None:
    pairing = Pairing(tuple(pair_of(np.zeros(300), np.ones(300), name) for name in ("x0", "x1")))
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
