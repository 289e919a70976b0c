"""Which call of a layer is which of its partner's, on recordings made by hand."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from reprod_log.pairing import calls
from reprod_log.pairing.calls import CallOrder, order_calls
from reprod_log.recording import Recording, entry_of

A, B, C = np.arange(1.0, 7).reshape(2, 3), np.arange(11.0, 17).reshape(2, 3), np.full((2, 3), -5.0)


def recording(path: str, *outputs: np.ndarray, detail: str = "full", step: int = 0, role: str = "output") -> Recording:
    entries = (entry_of(f"step{step}/forward/{path}#{call}:{role}", array) for call, array in enumerate(outputs))
    return Recording(tuple(replace(one, detail=detail, hash="" if detail != "full" else one.hash) for one in entries))  # type: ignore[arg-type]


def ordered(ours: Recording, theirs: Recording) -> CallOrder:
    return order_calls(ours, theirs, {"a": "b"})


def told(ours: list[np.ndarray], theirs: list[np.ndarray]) -> str:
    """The one word for calls on these outputs."""
    found = ordered(recording("a", *ours), recording("b", *theirs))
    assert sum((bool(found.exchanged), bool(found.rearranged), bool(found.unlike))) <= 1
    if found.rearranged | found.unlike:
        assert found.rearranged | found.unlike == {"a"}
        return "rearranged" if found.rearranged else "unlike"
    return "exchanged" if found.exchanged else "as they come"


def test_calls_in_another_order_are_told_one_by_one() -> None:
    found = ordered(recording("a", A, B, C), recording("b", C, A, B))
    assert found == CallOrder({"a": {0: 1, 1: 2, 2: 0}})


def test_calls_that_agree_as_they_come_or_in_no_order_are_left_alone() -> None:
    assert told([A, B], [A, B]) == "as they come"
    assert told([A, B], [B, C]) == "as they come"
    assert told([A], [B]) == "as they come"
    # A defect of some percent does not make another order of it.
    assert told([A, B], [1.04 * A, B]) == "as they come"
    assert told([A, 1.04 * A], [1.04 * A, A]) == "as they come"
    twenty, more = np.array([20.0, 0.0]), np.array([21.0, 0.0])
    assert told([twenty, more], [more, twenty]) == "as they come", "exactly as far apart as a defect may be"
    assert told([twenty, 1.1 * more], [1.1 * more, twenty]) == "exchanged"


def test_calls_are_the_same_within_a_thousandth() -> None:
    assert told([A, B], [B, 1.0009 * A]) == "exchanged"
    assert told([A, B], [B, 1.0011 * A]) == "as they come"


def test_every_call_there_is_taken_once() -> None:
    assert told([A, A, B], [B, A, C]) == "as they come"
    found = ordered(recording("a", A, A, B), recording("b", B, A, A))
    assert found.exchanged == {"a": {0: 1, 1: 2, 2: 0}}


def test_summaries_say_no_order() -> None:
    assert ordered(recording("a", A, B, detail="summary"), recording("b", B, A)) == CallOrder()
    assert ordered(recording("a", A, B), recording("b", B, A, detail="summary")) == CallOrder()


def test_calls_without_a_number_have_no_order() -> None:
    def unnumbered(path: str, *outputs: np.ndarray) -> Recording:
        found = recording(path, *outputs).entries
        return Recording(tuple(replace(one, key=replace(one.key, call=None, role=f"output{'.0' * place}"))
                               for place, one in enumerate(found)))  # fmt: skip

    assert ordered(unnumbered("a", A, B), recording("b", B, A)) == CallOrder()
    assert ordered(recording("a", A, B), unnumbered("b", B, A)) == CallOrder()


def test_only_first_outputs_of_the_first_step_count() -> None:
    ours, theirs = recording("a", A, B), recording("b", A, B)
    later = recording("b", C, step=1), recording("b", C, role="output.1"), recording("b", C, role="input")
    backward = entry_of("step0/backward/b#0:output", C)
    wide = entry_of("float64@step0/forward/b#0:output", C)
    more = Recording((*theirs.entries, *(one for other in later for one in other.entries), backward, wide))
    assert ordered(ours, more) == CallOrder()
    swapped = recording("b", B, A, role="output.0")
    assert ordered(recording("a", A, B, step=2), Recording(swapped.entries)).exchanged == {"a": {0: 1, 1: 0}}
    assert ordered(recording("c", A, B), theirs) == CallOrder()
    assert ordered(ours, recording("c", A, B)) == CallOrder()


def test_one_call_on_all_rows_is_the_same_as_several_on_some() -> None:
    assert told([A, B], [np.concatenate([A, B])]) == "rearranged"
    assert told([np.concatenate([B, A])], [A, B]) == "rearranged"
    assert told([A, B], [np.stack([A, B])]) == "rearranged"
    assert told([A, B], [np.concatenate([A, C])]) == "unlike"
    assert told([A], [np.concatenate([A, B])]) == "rearranged", "a part of the rows"
    assert told([np.concatenate([A, B])], [B]) == "rearranged"
    assert told([A], [np.concatenate([C, B])]) == "unlike"
    assert told([A[:1]], [np.concatenate([A, B])]) == "rearranged"


def test_axes_in_another_order_are_no_other_call() -> None:
    assert told([A], [A.T.copy()]) == "as they come"


def test_rows_are_the_same_within_a_thousandth() -> None:
    whole = np.concatenate([A, B])
    assert told([A, B], [1.0009 * whole]) == "rearranged"
    assert told([A, B], [1.0012 * whole]) == "unlike"
    tall = np.full((4, 3), 8.0)
    part = np.full((2, 3), 8.0)
    # A row must be as near as a thousandth of the usual element: with three of them, 1/sqrt(3) of the row's length.
    assert told([part], [1.0005 * tall]) == "rearranged"
    assert told([part], [1.0007 * tall]) == "unlike"


def test_every_row_must_be_found() -> None:
    many = np.concatenate([A, B, C])
    assert told([np.concatenate([A[:1], B])], [many]) == "rearranged"
    assert told([np.concatenate([A[:1], 2 * B])], [many]) == "unlike"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([A], [A[:, :2]]),
        ([np.array(1.0)], [np.ones((2, 1))]),
        ([np.ones((2, 3), np.int64)], [np.ones((4, 3), np.int64)]),
        ([np.zeros((0, 3))], [A]),
        ([np.zeros((0, 3))], [np.zeros((1, 0, 3))]),
    ],
)
def test_what_has_no_rows_alike_is_unlike(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    assert told(ours, theirs) == "unlike"
    assert told(theirs, ours) == "unlike"


def test_rows_without_values_are_unlike() -> None:
    whole = np.concatenate([A, B])
    assert ordered(recording("a", A, B, detail="sketch"), recording("b", whole)).unlike == {"a"}
    assert ordered(recording("a", A, B), recording("b", whole, detail="summary")).unlike == {"a"}


def test_too_many_rows_are_not_tried_against_each_other() -> None:
    whole = np.concatenate([A, B])
    with mock.patch.object(calls, "_MOST_PAIRS_OF_ROWS", 8):
        assert told([A], [whole]) == "rearranged"
    with mock.patch.object(calls, "_MOST_PAIRS_OF_ROWS", 7):
        assert told([A], [whole]) == "unlike"
        assert told([A, B], [whole]) == "rearranged", "as many rows here as there need no trying"


def test_wide_rows_are_told_apart_by_a_few_directions() -> None:
    wide = np.random.default_rng(1).normal(size=(6, 40))
    assert told([wide[:3], wide[3:]], [wide]) == "rearranged"
    other = wide.copy()
    other[2, 17] += 1.0
    assert told([wide[:3], wide[3:]], [other]) == "unlike"
    assert calls._directions(list(recording("a", wide).entries)).shape == (6, 8)
    assert calls._directions(list(recording("a", A).entries)).shape == (2, 3)


def test_every_module_is_looked_at() -> None:
    ours = Recording((*recording("a", A, B).entries, *recording("c", A, B).entries))
    theirs = Recording((*recording("b", B, A).entries, *recording("d", B, A).entries))
    found = order_calls(ours, theirs, {"gone": "gone", "a": "gone", "c": "d"})
    assert found.exchanged == {"c": {0: 1, 1: 0}}
    assert order_calls(Recording(()), Recording(()), {"a": "b"}) == CallOrder()
