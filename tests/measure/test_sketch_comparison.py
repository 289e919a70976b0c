"""Comparing recordings of any mix of details: what is estimated, bounded, exact or refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reprod_log.alignment import Alignment, align
from reprod_log.errors import UsageError
from reprod_log.measure.comparison import measure_pair
from reprod_log.measure.measurement import Measurement
from reprod_log.messages import message
from reprod_log.pairing import Pair, View
from reprod_log.recording import Entry, Key, Recording
from reprod_log.recording.entry import content_hash
from reprod_log.recording.portable import portable_entry
from reprod_log.recording.sketch import Sketching, SketchOrder, sketch_of
from reprod_log.report import write_report
from reprod_log.verdict import CalibratedPolicy, Status

Array = np.ndarray
DETAILS = ("full", "sketch", "summary")


_ORDER, _MADE = SketchOrder(), Sketching()


def entry(array: Array, detail: str = "sketch", *, form: SketchOrder = _ORDER, made: Sketching = _MADE) -> Entry:
    found = sketch_of(array, form=form, made=made)
    meta = {"full": {}, "summary": {"summary": found.summary}}.get(
        detail, {"summary": found.summary, "sketch": found.facts()}
    )
    return Entry(
        Key.parse("step0/forward/layer#0:output"),
        array.shape,
        array.dtype.name,
        read=lambda: array if detail == "full" else found.values,
        detail=detail,  # type: ignore[arg-type]
        hash=content_hash(array),
        meta=meta,
    )


def measured(reference: Entry, candidate: Entry, view: View | None = None) -> Measurement:
    row = measure_pair(Pair(reference, candidate, view=view))
    assert row.measurement is not None, row.incomparable
    return row.measurement


@pytest.fixture
def arrays() -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    one = random.standard_normal((60, 50)).astype(np.float32)
    return one, one + (1e-4 * random.standard_normal((60, 50))).astype(np.float32)


@pytest.mark.parametrize("details", [("sketch", "sketch"), ("full", "sketch"), ("sketch", "full")])
def test_estimate_is_near_and_bounds_hold_the_truth_for_each_mix_with_sketches(
    arrays: tuple[Array, Array], details: tuple[str, str]
) -> None:
    truth = measured(entry(arrays[0], "full"), entry(arrays[1], "full"))
    found = measured(entry(arrays[0], details[0]), entry(arrays[1], details[1]))
    assert found.estimate is not None
    assert found.estimate.source == "sketches"
    assert found.rel_l2 == pytest.approx(truth.rel_l2, rel=3 * found.estimate.error)
    assert found.rmse == pytest.approx(truth.rmse, rel=3 * found.estimate.error)
    for name, (low, high) in found.estimate.bounds.items():
        assert low <= getattr(truth, name) <= high, name
    assert np.isnan(found.max_abs)
    assert not found.identical
    assert (found.differing, found.reference.std) == (1, pytest.approx(truth.reference.std))


@pytest.mark.parametrize("mix", [(one, two) for one in DETAILS for two in DETAILS if (one, two) != ("full", "full")])
def test_equal_tensors_are_exact_by_their_hash_in_every_mix(arrays: tuple[Array, Array], mix: tuple[str, str]) -> None:
    found = measured(
        entry(arrays[0], mix[0]),
        replace(entry(arrays[0], mix[1]), hash="" if mix[1] == "full" else content_hash(arrays[0])),
    )
    assert found.estimate is None
    assert found.identical
    assert (found.max_abs, found.rel_l2, found.max_ulp) == (0, 0, 0)


def test_statistics_bound_from_below_only_so_they_can_fail_and_not_pass(arrays: tuple[Array, Array]) -> None:
    truth = measured(entry(arrays[0], "full"), entry(arrays[1], "full"))
    found = measured(entry(arrays[0], "sketch"), entry(arrays[1], "summary"))
    assert found.estimate is not None
    assert found.estimate.source == "statistics"
    for name, (low, high) in found.estimate.bounds.items():
        assert low <= getattr(truth, name) <= high == np.inf, name
    far = measured(entry(arrays[0], "summary"), entry(arrays[0] + 1, "summary"))
    assert far.estimate is not None
    assert far.estimate.bounds["mean_abs"][0] == pytest.approx(1, rel=1e-6)


def recordings(one: Entry, other: Entry) -> tuple[Recording, Recording]:
    return Recording((one,)), Recording((other,))


@pytest.mark.parametrize(
    ("limit", "status"),
    [("rel_l2:1e-3", Status.PASS), ("rel_l2:1e-6", Status.FAIL), ("rel_l2:1e-4", Status.INCOMPARABLE),
     ("max_abs:1", Status.PASS), ("max_abs:1e-5", Status.FAIL), ("max_ulp:1", Status.INCOMPARABLE)],
)  # fmt: skip
def test_a_verdict_on_estimates_is_given_only_where_the_bounds_leave_no_other(
    arrays: tuple[Array, Array], limit: str, status: Status
) -> None:
    alignment = align(*recordings(entry(arrays[0]), entry(arrays[1])), limits=[limit])
    judged = alignment.verdict.judgements[0]
    assert judged.status is status
    assert "estimated from sketches: rel_l2" in str(judged.reason)
    assert "±" in str(judged.reason)
    assert judged.evidence == "estimate from sketches"
    assert alignment.passed is (status is Status.PASS)


def test_statistics_alone_never_pass_and_say_why(arrays: tuple[Array, Array]) -> None:
    alignment = align(*recordings(entry(arrays[0], "summary"), entry(arrays[1], "summary")), limits=["rel_l2:1e9"])
    assert not alignment.passed
    assert "only statistics were recorded" in str(alignment.verdict.judgements[0].reason)


@pytest.mark.parametrize("made", [Sketching(64), Sketching(seed=1)])
def test_sketches_of_another_size_or_seed_are_not_compared_and_it_is_said(
    arrays: tuple[Array, Array], made: Sketching
) -> None:
    row = measure_pair(Pair(entry(arrays[0]), entry(arrays[1], made=made)))
    assert row.measurement is None
    assert "sketches made differently" in str(row.incomparable)
    assert f"{made.size} numbers, seed {made.seed}" in str(row.incomparable)


def test_sketches_in_different_orders_of_elements_are_refused() -> None:
    square = np.random.default_rng(1).standard_normal((30, 30))
    row = measure_pair(Pair(entry(square), entry(square.T.copy(), form=SketchOrder(axes=(1, 0)))))
    assert row.measurement is None
    assert "different orders" in str(row.incomparable)


def test_a_view_of_axes_holds_for_a_sketch_that_was_taken_in_the_canonical_order(arrays: tuple[Array, Array]) -> None:
    pictures = np.random.default_rng(2).standard_normal((2, 5, 6, 7)).astype(np.float32)
    moved = pictures + np.float32(1e-3)
    last = np.ascontiguousarray(moved.transpose(0, 2, 3, 1))
    view = View(message("view.transposed"), axes=(0, 3, 1, 2))
    truth = measured(entry(pictures, "full"), entry(moved, "full"))
    for ours in ("full", "sketch"):
        found = measured(entry(pictures, ours), entry(last, form=SketchOrder(axes=(0, 3, 1, 2))), view)
        assert found.estimate is not None
        assert found.rel_l2 == pytest.approx(truth.rel_l2, rel=0.15)
        row = measure_pair(Pair(entry(pictures, "sketch"), entry(last), view=view))
        assert "different orders" in str(row.incomparable)


@pytest.mark.parametrize("same", [True, False])
def test_nan_at_the_same_places_counts_on_both_sides_and_elsewhere_as_a_mismatch(
    arrays: tuple[Array, Array], same: bool
) -> None:
    one, other = arrays[0].copy(), arrays[1].copy()
    one[0, 0] = one[1, 1] = np.nan
    other[0, 0] = other[(1, 1) if same else (2, 2)] = np.nan
    found = measured(entry(one), entry(other))
    assert (found.nan_both, found.nonfinite_mismatched) == ((2, 0) if same else (0, 1))
    alignment = align(*recordings(entry(one), entry(other)), limits=["rel_l2:1e-2"], equal_nan=True)
    assert alignment.passed is same


def test_the_calibrated_rule_refuses_estimates(arrays: tuple[Array, Array]) -> None:
    with pytest.raises(UsageError, match="only sketches or statistics"):
        align(*recordings(entry(arrays[0]), entry(arrays[1])), policy=CalibratedPolicy())


def test_a_difference_of_few_elements_has_a_wider_error(arrays: tuple[Array, Array]) -> None:
    few = arrays[0].copy()
    few[3, 3] += 1
    spread, narrow = measured(entry(arrays[0]), entry(arrays[1])), measured(entry(arrays[0]), entry(few))
    assert spread.estimate is not None
    assert narrow.estimate is not None
    assert narrow.estimate.error > 4 * spread.estimate.error
    assert narrow.rmse == pytest.approx(1 / np.sqrt(few.size), rel=1e-5)


@pytest.mark.parametrize("suffix", ["txt", "md", "json", "xml", "html"])
def test_every_report_says_what_is_estimated_and_how_sure(
    arrays: tuple[Array, Array], tmp_path: Path, suffix: str
) -> None:
    alignment = align(*recordings(entry(arrays[0]), entry(arrays[1])), limits=["rel_l2:1e-6"])
    text = write_report(alignment, tmp_path / f"report.{suffix}").read_text()
    assert "estimated from sketches" in text
    assert "standard error of " in text or suffix == "xml"
    assert "±" in text or "\\u00b1" in text
    if suffix == "json":
        assert Alignment.load(tmp_path / "report.json").verdict == alignment.verdict


@pytest.mark.parametrize("suffix", ["", ".npz", ".safetensors"])
def test_sketches_come_back_from_every_store(arrays: tuple[Array, Array], tmp_path: Path, suffix: str) -> None:
    kept = Recording(tuple(replace(entry(one), key=Key.parse(name)) for name, one in zip("ab", arrays, strict=True)))
    kept.save(tmp_path / f"rec{suffix}")
    from reprod_log.recording.stores import load

    for one, other in zip(kept, load(tmp_path / f"rec{suffix}"), strict=True):
        assert np.array_equal(one.read(), other.read())
        assert (one.meta, one.hash, one.detail) == (other.meta, other.hash, other.detail)


@pytest.mark.parametrize("detail", DETAILS)
def test_entries_of_every_detail_can_be_sent_to_another_process(arrays: tuple[Array, Array], detail: str) -> None:
    one = entry(arrays[0], detail)
    sent = pickle.loads(pickle.dumps(portable_entry(one)))
    found, known = (measure_pair(Pair(side, entry(arrays[1]))).measurement for side in (sent, one))
    assert found == known or detail == "summary"
    assert found is not None
