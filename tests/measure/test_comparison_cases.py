"""A comparison of pairs of every kind: its rows, what could not be measured, and that it survives being written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from reprod_log import Recording
from reprod_log.measure.comparison import Comparison, measure, measure_pair
from reprod_log.pairing import Pair, match
from reprod_log.recording import Entry, Key, entry_of
from reprod_log.recording.sketch import SketchOrder, sketch_of

REFERENCE = {
    "same": np.arange(6.0).reshape(2, 3),
    "moved": np.arange(6.0).reshape(2, 3),
    "shape": np.ones((2, 3)),
    "kind": np.array(["a", "b"]),
    "words": np.array(["a", "b"]),
    "single": np.array(1.0),
    "lonely_name": np.ones(1),
}
CANDIDATE = {
    "same": np.arange(6.0).reshape(2, 3),
    "moved": np.arange(6.0).reshape(2, 3) + np.array([0, 0, 2.0]),
    "shape": np.ones((3, 2)),
    "kind": np.ones(2),
    "words": np.array(["a", "x"]),
    "single": np.array([1.0]),
    "lonely_nama": np.ones(1),
}


def comparison(**options: object) -> Comparison:
    pairing = match(Recording.from_arrays(REFERENCE), Recording.from_arrays(CANDIDATE))
    return measure(pairing, limit_for=lambda pair: 1.0, **options)  # type: ignore[arg-type]


def test_rows_say_what_was_compared() -> None:
    rows = {row.key: row for row in comparison().rows}
    assert list(rows) == [key for key in REFERENCE if key != "lonely_name"]
    moved = rows["moved"]
    assert (moved.candidate_key, moved.how, moved.confidence) == ("moved", "name", 1.0)
    assert (moved.view, moved.layer_type) == ("", "")
    assert (moved.reference_shape, moved.candidate_shape) == ((2, 3), (2, 3))
    assert (moved.reference_dtype, moved.candidate_dtype) == ("float64", "float64")
    assert moved.measurement is not None
    assert (moved.measurement.max_abs, moved.measurement.beyond_limit, moved.measurement.limit) == (2.0, 2, 1.0)
    assert rows["single"].view == "(1,) and () are the same single number"
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


def test_lonely_entries_know_names_that_look_like_theirs() -> None:
    assert [(one.key, one.side, one.near) for one in comparison().unmatched] == [
        ("lonely_name", "reference", ("lonely_nama",)),
        ("lonely_nama", "candidate", ("lonely_name",)),
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


def test_progress_hears_every_byte() -> None:
    heard: list[tuple[int, int]] = []
    comparison(progress=lambda done, total: heard.append((done, total)))
    assert heard[-1][0] == heard[-1][1] > 0
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


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
