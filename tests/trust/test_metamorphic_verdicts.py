"""What must stay, or change in a known way, when two recordings are changed in a known way."""

from collections.abc import Mapping

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reprod_log import Alignment, Recording, Status, align
from reprod_log.verdict import Limit

NAMES = ("a", "b", "c", "d")
SYMMETRIC = ("max_abs", "mean_abs", "rmse", "min_abs", "differing", "max_ulp", "mean_ulp", "cosine")
SCALE_FREE = ("max_rel", "mean_rel", "rel_l2", "cosine", "differing", "max_ulp", "mean_ulp")

# Numbers whose products with small powers of two are exact in float32.
numbers = st.floats(0.5, 64, width=16).map(np.float32)
arrays = st.lists(numbers, min_size=4, max_size=12).map(lambda values: np.array(values, np.float32))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Two sides with the same names and shapes, some entries equal and some moved a little."""
    reference = {name: draw(arrays) for name in NAMES[: draw(st.integers(1, 4))]}
    candidate = {}
    for name, array in reference.items():
        moved = draw(st.sampled_from([0.0, 2.0**-12, 2.0**-9, 0.25, 1.0]))
        where = draw(st.integers(0, len(array) - 1))
        candidate[name] = array.copy()
        candidate[name][where] += np.float32(moved)
    return reference, candidate


limit_sets = st.lists(
    st.tuples(st.sampled_from(sorted({*SYMMETRIC, *SCALE_FREE})), st.sampled_from([0.0, 1e-4, 1e-3, 0.1, 1.0, 100.0])),
    min_size=1, max_size=3, unique_by=lambda one: one[0],
).map(lambda found: tuple(Limit(name, value) for name, value in found))  # fmt: skip


def aligned(
    reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray], limits: tuple[Limit, ...]
) -> Alignment:
    return align(Recording.from_arrays(reference), Recording.from_arrays(candidate), limits=limits)


def statuses(alignment: Alignment) -> dict[str, Status]:
    return {one.key: one.status for one in alignment.verdict.judgements}


settled = settings(max_examples=40, deadline=None)


@settled
@given(pairs(), limit_sets)
def test_swapping_the_sides_changes_no_verdict_of_symmetric_metrics(sides, limits) -> None:
    limits = tuple(one for one in limits if one.metric in SYMMETRIC)
    if limits:
        assert statuses(aligned(*sides, limits)) == statuses(aligned(*sides[::-1], limits))


@settled
@given(pairs(), limit_sets, st.randoms(use_true_random=False))
def test_permuting_both_sides_alike_changes_no_verdict(sides, limits, chance) -> None:
    orders = {name: chance.sample(range(len(array)), len(array)) for name, array in sides[0].items()}
    permuted = [{name: side[name][orders[name]] for name in side} for side in sides]
    before, after = aligned(*sides, limits), aligned(*permuted, limits)
    assert statuses(before) == statuses(after)
    for one, other in zip(before.comparison.rows, after.comparison.rows, strict=True):
        assert one.measurement is not None
        assert other.measurement is not None
        assert one.measurement.max_abs == other.measurement.max_abs
        assert one.measurement.differing == other.measurement.differing


@settled
@given(pairs(), limit_sets, st.integers(-20, 20))
def test_scaling_by_a_power_of_two_scales_absolute_metrics_and_leaves_relative_ones(sides, limits, power) -> None:
    factor = np.float32(2.0**power)
    scaled = [{name: array * factor for name, array in side.items()} for side in sides]
    scaled_limits = tuple(
        one if one.metric in SCALE_FREE else Limit(one.metric, one.value * float(factor)) for one in limits
    )
    assert statuses(aligned(*sides, limits)) == statuses(aligned(*scaled, scaled_limits))


@settled
@given(pairs(), limit_sets, st.integers(1, 3))
def test_splitting_an_entry_keeps_the_verdict_of_the_largest_difference(sides, limits, at) -> None:
    limits = tuple(one for one in limits if one.metric in ("max_abs", "max_rel", "max_ulp"))
    if not limits:
        return
    parts = [
        {f"{name}{half}": array[:at] if half == 0 else array[at:] for name, array in side.items() for half in (0, 1)}
        for side in sides
    ]
    assert aligned(*sides, limits).passed == aligned(*parts, limits).passed


@settled
@given(pairs(), limit_sets, arrays)
def test_adding_an_equal_entry_changes_nothing_else(sides, limits, extra) -> None:
    more = [{**side, "extra": extra} for side in sides]
    before, after = aligned(*sides, limits), aligned(*more, limits)
    assert statuses(after) == {**statuses(before), "extra": Status.PASS}
    assert after.passed == before.passed
    assert (before.first_divergence and before.first_divergence.key) == (
        after.first_divergence and after.first_divergence.key
    )


@settled
@given(pairs(), limit_sets, arrays)
def test_adding_an_entry_to_one_side_only_never_passes(sides, limits, extra) -> None:
    for lonely in (({**sides[0], "extra": extra}, sides[1]), (sides[0], {**sides[1], "extra": extra})):
        found = aligned(*lonely, limits)
        assert not found.passed
        assert statuses(found)["extra"] is Status.UNMATCHED


@settled
@given(pairs(), limit_sets, st.sampled_from([1.0, 2.0, 1000.0]))
def test_loosening_a_limit_never_makes_a_pass_fail(sides, limits, factor) -> None:
    loose = tuple(Limit(one.metric, one.value * factor + (factor - 1) * 1e-3) for one in limits)
    before, after = statuses(aligned(*sides, limits)), statuses(aligned(*sides, loose))
    assert all(after[key] is Status.PASS for key, status in before.items() if status is Status.PASS)


@settled
@given(pairs(), limit_sets)
def test_recording_against_itself_passes_any_limit(sides, limits) -> None:
    found = aligned(sides[0], sides[0], limits)
    assert found.passed
    assert set(statuses(found).values()) == {Status.PASS}


@settled
@given(pairs(), limit_sets, st.sampled_from([np.nan, np.inf, -np.inf]))
def test_value_that_is_not_finite_on_one_side_never_passes(sides, limits, value) -> None:
    for side in (0, 1):
        spoilt = [{name: array.copy() for name, array in one.items()} for one in sides]
        spoilt[side]["a"][0] = value
        assert not aligned(*spoilt, limits).passed


@settled
@given(pairs(), limit_sets)
def test_order_of_the_candidate_does_not_matter(sides, limits) -> None:
    turned = dict(reversed(sides[1].items()))
    assert statuses(aligned(*sides, limits)) == statuses(aligned(sides[0], turned, limits))


@settled
@given(pairs(), limit_sets)
def test_saved_alignment_is_judged_alike(sides, limits) -> None:
    found = aligned(*sides, limits)
    again = Alignment.from_dict(found.to_dict())
    assert again.verdict == found.verdict
    strict = found.judged_by(again.policy)
    assert strict.verdict == found.verdict
