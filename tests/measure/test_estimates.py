"""Estimates and bounds from sketches and statistics made by hand, against the numbers that the formulas must give."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reprod_log.measure.measurement import Estimate, Measurement
from reprod_log.measure.sketch import estimate_notes, estimate_pair, has_values
from reprod_log.messages import Message, message
from reprod_log.pairing import Pair, View
from reprod_log.recording import Entry, entry_of
from reprod_log.recording.entry import content_hash
from reprod_log.recording.sketch import Sketch, Sketching, SketchOrder, sketch_of
from reprod_log.recording.summary import summarise

KEY = "step0/forward/a#0:output"
STATISTICS = ("min", "max", "mean", "std", "rms", "abs_max")


def summary(*, nan: int = 0, inf: int = 0, **numbers: float) -> dict[str, Any]:
    return {**dict.fromkeys(STATISTICS, 0.0), **numbers, "nan": nan, "inf": inf}


def plain(
    told: dict[str, Any] | None, *, shape: tuple[int, ...] = (4,), hash: str = "", dtype: str = "float32"
) -> Entry:
    """An entry of which nothing but statistics is known."""
    meta = {} if told is None else {"summary": told}
    return replace(entry_of(KEY, np.zeros(shape, np.float32)), detail="summary", hash=hash, dtype=dtype, meta=meta)


def sketched(values: Any, told: dict[str, Any] | None = None, *, shape: tuple[int, ...] = (16,), nonfinite: str = "",
             made: Sketching = Sketching(size=16), form: SketchOrder = SketchOrder(), hash: str = "") -> Entry:  # noqa: B008  # fmt: skip
    """An entry whose sketch has these first numbers and zeros behind."""
    row = np.zeros((1, made.size))
    row[0, : len(values)] = values
    found = Sketch(row, told or summary(rms=1.0), form, made, nonfinite)
    meta = {"summary": found.summary, "sketch": found.facts()}
    return replace(entry_of(KEY, np.zeros(shape, np.float32)), read=lambda: row, detail="sketch", hash=hash, meta=meta)


def estimated(reference: Entry, candidate: Entry, view: View | None = None) -> Measurement:
    found = estimate_pair(Pair(reference, candidate, view=view))
    assert isinstance(found, Measurement), found
    return found


def refused(pair: Pair) -> str:
    found = estimate_pair(pair)
    assert isinstance(found, Message), found
    return str(found)


def bounds(found: Measurement) -> dict[str, tuple[float, float]]:
    assert found.estimate is not None
    return dict(found.estimate.bounds)


def test_norm_is_that_of_the_difference_of_the_sketches() -> None:
    error = 1 / math.sqrt(32)

    def norm(*difference: float) -> tuple[float, float]:
        found = estimated(sketched([]), sketched(difference))
        assert found.estimate is not None
        return found.rmse * math.sqrt(found.count), found.estimate.error

    assert norm() == (0.0, pytest.approx(error))
    assert norm(*[2.0] * 16) == (pytest.approx(8.0), pytest.approx(error))
    # One bucket has all of it: the error is half of sqrt(2/3).
    assert norm(-3.0) == (pytest.approx(3.0), pytest.approx(math.sqrt(2 / 3) / 2))
    crowded = math.sqrt(2 / 3 * (1 + (4 / 9) ** 2)) / (1 + 4 / 9) / 2
    assert norm(3.0, 2.0) == (pytest.approx(math.sqrt(13)), pytest.approx(crowded))
    assert norm(3e200, 2e200)[0] == pytest.approx(math.sqrt(13) * 1e200), "squares do not overflow"


def test_estimate_and_its_bounds_follow_from_norm_error_and_size() -> None:
    # |d| = 4 over 16 elements, spread evenly; the reference has a norm of 2 * 4.
    left, right = summary(rms=2.0), summary(rms=2.0)
    found = estimated(sketched([1.0] * 16, left), sketched([0.0], right))
    error = 1 / math.sqrt(32)
    spread = 2 * 3 * error
    times = math.sqrt(1 + spread + spread * spread)
    assert found.rmse == pytest.approx(1.0)
    assert found.rel_l2 == pytest.approx(0.5)
    assert found.estimate is not None
    assert (found.estimate.source, found.estimate.error) == ("sketches", pytest.approx(error))
    low, high = 4 / times, 4 * times
    assert bounds(found) == {
        "rel_l2": (pytest.approx(low / 8), pytest.approx(high / 8)),
        "rmse": (pytest.approx(low / 4), pytest.approx(high / 4)),
        "mean_abs": (pytest.approx(low / 16), pytest.approx(high / 4)),
        "max_abs": (pytest.approx(low / 4), pytest.approx(high)),
        "min_abs": (0.0, pytest.approx(high / 4)),
    }
    assert all(math.isnan(value) for value in (found.max_abs, found.mean_abs, found.max_rel, found.cosine_distance))
    assert (found.count, found.differing, found.nan_both, found.nonfinite_mismatched) == (16, -1, 0, 0)
    assert (found.reference.rms, found.candidate.rms, found.worst) == (2.0, 2.0, None)


def test_statistics_beside_sketches_narrow_the_bounds_from_below() -> None:
    left = summary(rms=2.0, mean=1.0, max=5.0, min=-5.0)
    right = summary(rms=2.0, mean=1.75, max=5.0, min=-15.0)
    found = bounds(estimated(sketched([0.01] * 16, left), sketched([0.0], right)))
    assert found["mean_abs"][0] == pytest.approx(0.75)
    assert found["rmse"][0] == pytest.approx(0.75)
    assert found["max_abs"][0] == 10.0
    for lost in ({"nan": 1}, {"inf": 1}):
        for pair in ((summary(**lost, rms=2.0, mean=1.0), right), (left, summary(**lost, rms=2.0, mean=9.0))):  # type: ignore[arg-type]
            ours, theirs = (
                sketched(value, told, nonfinite="a") for value, told in zip(([0.01] * 16, [0.0]), pair, strict=True)
            )
            narrow = bounds(estimated(ours, theirs))
            assert narrow["max_abs"][0] < 0.1, "each side leaves its own values out"


def test_difference_below_the_rounding_of_sums_is_not_seen() -> None:
    left, right = summary(rms=2.0**40), summary(rms=2.0**42)
    found = bounds(estimated(sketched([0.0], left), sketched([0.0], right)))
    # 2^-52 * sqrt(16 / 16) * the larger norm, 2^42 * 4
    assert found["max_abs"] == (0.0, pytest.approx(2.0**-8))
    assert found["rmse"] == (0.0, pytest.approx(2.0**-10))
    tall = bounds(estimated(sketched([0.0], left, shape=(64,)), sketched([0.0], right, shape=(64,))))
    assert tall["max_abs"][1] == pytest.approx(2.0**-52 * 2 * 2.0**42 * 8)
    unknown = summary(rms=math.nan)
    assert bounds(estimated(sketched([0.0], unknown), sketched([0.0], unknown)))["max_abs"] == (0.0, math.inf)
    assert bounds(estimated(sketched([0.0], unknown), sketched([0.0], right)))["max_abs"][1] == pytest.approx(2.0**-8)
    # Means closer than four roundings say nothing.
    near = summary(rms=2.0**42, mean=1.0), summary(rms=2.0**42, mean=1.0 + 3 * 2.0**-10)
    assert bounds(estimated(sketched([0.0], near[0]), sketched([0.0], near[1])))["mean_abs"][0] == 0.0
    far = summary(rms=2.0**42, mean=1.0), summary(rms=2.0**42, mean=1.0 + 6 * 2.0**-10)
    assert bounds(estimated(sketched([0.0], far[0]), sketched([0.0], far[1])))["mean_abs"][0] == pytest.approx(
        2 * 2.0**-10
    )


def test_nothing_to_be_relative_to_is_an_endless_share() -> None:
    zero = summary(rms=0.0)
    found = estimated(sketched([1.0], zero), sketched([0.0], zero))
    assert found.rel_l2 == math.inf
    assert estimated(sketched([0.0], zero), sketched([0.0], zero)).rel_l2 == 0.0


def test_values_that_are_not_finite_are_told_by_their_hash() -> None:
    lost = summary(rms=1.0, nan=2, inf=1)
    same = estimated(sketched([1.0], lost, nonfinite="a"), sketched([0.0], lost, nonfinite="a"))
    assert (same.nan_both, same.nonfinite_mismatched) == (2, 0)
    assert same.rmse == pytest.approx(1 / math.sqrt(14))
    assert same.rel_l2 == pytest.approx(1 / math.sqrt(13))
    other = estimated(sketched([1.0], lost, nonfinite="a"), sketched([0.0], lost, nonfinite="b"))
    assert (other.nan_both, other.nonfinite_mismatched) == (0, 1)
    assert other.rmse == pytest.approx(1 / math.sqrt(15))
    more = summary(rms=1.0, nan=5, inf=3)
    assert (
        estimated(sketched([1.0], lost, nonfinite="a"), sketched([0.0], more, nonfinite="b")).nonfinite_mismatched == 5
    )
    one_side = estimated(sketched([1.0], summary(rms=1.0)), sketched([0.0], more, nonfinite="b"))
    assert (one_side.nan_both, one_side.nonfinite_mismatched) == (0, 8)
    assert estimated(sketched([1.0], more, nonfinite="b"), sketched([0.0])).nonfinite_mismatched == 8
    for ours, theirs in (("of parts", ""), ("", "of parts"), ("of parts", "of parts")):
        told = refused(Pair(sketched([1.0], nonfinite=ours), sketched([1.0], nonfinite=theirs)))
        assert told == "there are NaN or infinities, and sketches of parts do not tell where; record it in full"


def test_tensor_that_is_mostly_nan_is_estimated_by_the_rest() -> None:
    array = np.arange(1.0, 17.0)
    array[:12] = math.nan
    moved = array * 2
    found = estimated(recorded(array), recorded(moved))
    assert (found.nan_both, found.nonfinite_mismatched) == (12, 0)
    assert found.rmse == pytest.approx(math.sqrt((13**2 + 14**2 + 15**2 + 16**2) / 4), rel=0.3)
    low, high = bounds(found)["max_abs"]
    assert low <= 16.0 <= high


def test_tensor_with_nothing_finite_is_taken_for_one_element() -> None:
    lost = summary(rms=math.nan, nan=16)
    assert estimated(sketched([0.5], lost, nonfinite="a"), sketched([0.0], lost, nonfinite="a")).rmse == 0.5


@pytest.mark.parametrize(
    ("hashes", "dtypes", "view", "differing"),
    [
        (("a", "b"), ("float32", "float32"), None, 1),
        (("a", ""), ("float32", "float32"), None, -1),
        (("", "b"), ("float32", "float32"), None, -1),
        (("a", "b"), ("float32", "float64"), None, -1),
        (("a", "b"), ("float32", "float32"), View(message("view.transposed"), axes=(0,)), -1),
        (("a", "b"), ("float32", "float32"), View(message("view.reshaped"), shape=(16,)), 1),
    ],
)
def test_other_hashes_mean_other_values_only_of_one_kind(
    hashes: tuple[str, str], dtypes: tuple[str, str], view: View | None, differing: int
) -> None:
    ours, theirs = (
        replace(sketched([one]), hash=hash, dtype=dtype)
        for one, hash, dtype in zip((0.0, 1.0), hashes, dtypes, strict=True)
    )
    assert estimated(ours, theirs, view).differing == differing
    ours, theirs = (replace(one, detail="summary") for one in (ours, theirs))
    assert estimated(ours, theirs, view).differing == differing


def test_sketches_made_otherwise_are_named_and_not_compared() -> None:
    told = refused(Pair(sketched([1.0]), sketched([1.0], made=Sketching(size=32, seed=7))))
    assert told == (
        "sketches made differently cannot be compared: reference 16 numbers, seed 0, version 1, candidate 32 numbers, "
        "seed 7, version 1. Record one of the two again like the other, or in full."
    )
    square = sketched([1.0], shape=(4, 4))
    told = refused(Pair(square, sketched([1.0], shape=(4, 4), form=SketchOrder((1, 0)))))
    assert told == (
        "the two were sketched in different orders of their elements, which cannot be changed afterwards. "
        "Record one of the two in full."
    )


RANDOM = np.random.default_rng(3).normal(size=(6, 10)).astype(np.float32)


def recorded(array: np.ndarray, form: SketchOrder = SketchOrder(), made: Sketching = Sketching()) -> Entry:  # noqa: B008
    found = sketch_of(array, form=form, made=made)
    meta = {"summary": found.summary, "sketch": found.facts()}
    return replace(entry_of(KEY, array), read=lambda: found.values, detail="sketch", hash="", meta=meta)


def full(array: np.ndarray) -> Entry:
    return replace(entry_of(KEY, array), hash="")


@pytest.mark.parametrize("form", [SketchOrder(), SketchOrder((1, 0)), SketchOrder(None, 2)])
@pytest.mark.parametrize("made", [Sketching(), Sketching(size=64, seed=9)])
def test_side_with_values_is_sketched_like_the_other(form: SketchOrder, made: Sketching) -> None:
    moved = RANDOM * 1.5
    for ours, theirs in (
        (full(RANDOM), recorded(moved, form, made)),
        (recorded(RANDOM, form, made), full(moved)),
        (recorded(RANDOM, form, made), recorded(moved, form, made)),
    ):
        found = estimated(ours, theirs)
        exact = recorded(RANDOM, form, made).read() - recorded(moved, form, made).read()
        assert found.rmse == pytest.approx(np.linalg.norm(exact) / math.sqrt(60), rel=1e-6)


@pytest.mark.parametrize("form", [SketchOrder(), SketchOrder((1, 0))])
def test_turned_candidate_is_compared_in_the_reference_s_order(form: SketchOrder) -> None:
    view = View(message("view.transposed"), axes=(1, 0))
    turned_form = SketchOrder((1, 0)) if form == SketchOrder() else SketchOrder()
    for ours, theirs in (
        (recorded(RANDOM, form), recorded(RANDOM.T.copy(), turned_form)),
        (full(RANDOM), recorded(RANDOM.T.copy(), turned_form)),
        (recorded(RANDOM, form), full(RANDOM.T.copy())),
    ):
        assert estimated(ours, theirs, view).rmse == pytest.approx(0.0, abs=1e-9)
    wrong = refused(Pair(recorded(RANDOM, form), recorded(RANDOM.T.copy(), form), view=view))
    assert "different orders" in wrong
    square = recorded(RANDOM[:, :6], SketchOrder((1, 0), 2)), recorded(RANDOM[:, :6].T.copy(), SketchOrder(None, 2))
    assert estimated(*square, view).rmse == pytest.approx(0.0, abs=1e-9)


def test_shapes_are_compared_as_they_are_viewed() -> None:
    flat = replace(sketched([1.0]), shape=(4, 4))
    assert refused(Pair(sketched([1.0]), flat)) == "shapes differ: reference [16], candidate [4, 4]"
    assert estimated(sketched([1.0]), flat, View(message("view.reshaped"), shape=(16,))).rmse == 0.0
    tall = plain(summary(rms=1.0), shape=(2, 3))
    assert (
        estimated(tall, plain(summary(rms=1.0), shape=(3, 2)), View(message("view.transposed"), axes=(1, 0))).estimate
        is not None
    )
    assert "shapes differ" in refused(Pair(tall, plain(summary(rms=1.0), shape=(3, 2))))


def test_equal_hashes_are_no_difference() -> None:
    told = summary(rms=2.0, nan=1)
    found = estimated(plain(told, hash="a"), plain(None, hash="a"))
    assert (found.differing, found.max_abs, found.rel_l2, found.max_ulp, found.mean_ulp) == (0, 0.0, 0.0, 0.0, 0.0)
    assert (found.nan_both, found.reference.rms, found.candidate.rms) == (1, 2.0, 2.0)
    assert tuple(map(str, found.notes)) == ("equal by content hash; the values were not recorded",)
    assert estimated(plain(None, hash="a"), plain(told, hash="a")).reference.rms == 2.0
    bfloat = estimated(plain(told, hash="a", dtype="bfloat16"), plain(told, hash="a", dtype="bfloat16"))
    assert bfloat.max_ulp == 0.0
    whole = estimated(plain(told, hash="a", dtype="int64"), plain(told, hash="a", dtype="int64"))
    assert (whole.max_ulp, whole.mean_ulp) == (None, None)
    lost = estimated(plain(summary(nan=4), hash="a"), plain(summary(nan=4), hash="a"))
    assert math.isnan(lost.max_abs)
    assert math.isnan(lost.max_ulp or 0.0)
    empty = estimated(plain(summary(), hash="a", shape=(0,)), plain(summary(), hash="a", shape=(0,)))
    assert (empty.max_abs, empty.count) == (0.0, 0)
    nothing = refused(Pair(plain(None, hash="a"), plain(None, hash="a")))
    assert "has neither values nor statistics in either recording" in nothing


def test_hash_of_a_side_with_values_is_taken_when_the_other_has_one() -> None:
    whole = entry_of(KEY, RANDOM)
    known = replace(whole, detail="summary", meta={"summary": summarise(RANDOM)})
    hashed = replace(known, hash=content_hash(RANDOM))
    assert estimated(full(RANDOM), hashed).differing == 0
    assert estimated(hashed, full(RANDOM)).differing == 0
    assert estimated(full(RANDOM + 1), hashed).estimate is not None
    assert estimated(full(RANDOM), replace(known, hash="")).estimate is not None
    # Turned, the same bytes are other values.
    square = RANDOM[:, :6].copy()
    turned = replace(entry_of(KEY, square), detail="summary", meta={"summary": summarise(square)}, hash="a")
    found = estimated(replace(turned, hash="a"), turned, View(message("view.transposed"), axes=(1, 0)))
    assert found.estimate is not None


def test_statistics_bound_from_below() -> None:
    left = summary(rms=3.0, mean=1.0, max=4.0, min=-4.0)
    right = summary(rms=5.0, mean=1.5, max=4.0, min=-10.0)
    found = estimated(plain(left), plain(right))
    assert bounds(found) == {
        "rel_l2": (pytest.approx(4.0 / 6.0), math.inf),
        "rmse": (pytest.approx(2.0), math.inf),
        "mean_abs": (pytest.approx(0.5), math.inf),
        "max_abs": (6.0, math.inf),
    }
    assert found.estimate is not None
    assert (found.estimate.source, math.isnan(found.estimate.error)) == ("statistics", True)
    assert math.isnan(found.rmse)
    # The root mean squares may be closer than the means.
    near = bounds(estimated(plain(summary(rms=3.0, mean=3.0)), plain(summary(rms=3.0, mean=-3.0))))
    assert near["rmse"][0] == pytest.approx(6.0)
    assert near["max_abs"][0] == pytest.approx(6.0)
    same = bounds(estimated(plain(left), plain(left)))
    assert same == dict.fromkeys(("rel_l2", "rmse", "mean_abs", "max_abs"), (0.0, math.inf))


def test_statistics_that_leave_values_out_prove_nothing_but_that() -> None:
    right = summary(rms=9.0, mean=9.0, max=9.0, min=9.0)
    for lost in ({"nan": 2}, {"inf": 2}):
        left = summary(rms=1.0, **lost)  # type: ignore[arg-type]
        for ours, theirs in ((left, right), (right, left)):
            found = estimated(plain(ours), plain(theirs))
            assert found.nonfinite_mismatched == 2
            assert bounds(found)["max_abs"] == (0.0, math.inf)
    both = estimated(plain(summary(rms=1.0, nan=3, inf=1)), plain(summary(rms=1.0, nan=1, inf=2)))
    assert both.nonfinite_mismatched == 3
    unknown = estimated(plain(summary(rms=math.nan)), plain(right))
    assert bounds(unknown)["rel_l2"] == (0.0, math.inf)


def test_differences_that_rounding_explains_prove_nothing() -> None:
    tiny = bounds(estimated(plain(summary(rms=1.0)), plain(summary(rms=1.0 + 5e-13))))
    assert tiny["rmse"] == (0.0, math.inf)
    means = bounds(estimated(plain(summary(rms=2.0**50, mean=0.0)), plain(summary(rms=2.0**50, mean=1.0))))
    assert means["mean_abs"][0] == 0.0, "four roundings of sums of four values of that size"
    means = bounds(estimated(plain(summary(rms=2.0**50, mean=0.0)), plain(summary(rms=2.0**50, mean=9.0))))
    assert means["mean_abs"][0] == pytest.approx(9.0 - 4 * 0.25 * 2)


def test_entry_without_anything_is_named() -> None:
    for pair in ((plain(None), plain(summary())), (plain(summary()), plain(None))):
        assert refused(Pair(*pair)) == f"'{KEY}' has neither values nor statistics in one of the recordings"


def test_pair_has_values_when_both_sides_have() -> None:
    whole, bare = full(RANDOM), plain(summary(), shape=(6, 10))
    assert has_values(Pair(whole, whole))
    assert not has_values(Pair(whole, bare))
    assert not has_values(Pair(bare, whole))


def test_notes_say_how_much_is_estimated_and_how_sure() -> None:
    plain_one = estimated(plain(summary(), hash="a"), plain(summary(), hash="a"))

    def of(source: str, error: float) -> Measurement:
        return plain_one._replace(estimate=Estimate(source, error, {}))

    assert estimate_notes([plain_one, None]) == ()
    assert tuple(map(str, estimate_notes([plain_one, None, of("sketches", 0.01), of("sketches", 0.05)]))) == (
        "2 of 4 pairs are estimated from sketches: rel_l2 and rmse with a standard error of 1.0% to 5.0%, other "
        "metrics as bounds 3 errors wide",
        "if two elements of a tensor are swapped, its sketch does not show it once in 10000 times",
    )
    assert tuple(map(str, estimate_notes([of("statistics", math.nan), None]))) == (
        "of 1 of 2 pairs only statistics were recorded: they can fail, not pass",
    )
