"""Which call of a layer is which of its partner's, on recordings made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairing.made import PADDLE, TORCH, Model, matched
from reprod_log.pairing import Pairing
from reprod_log.recording import Entry, Recording, entry_of

A, B, C = np.arange(1.0, 7).reshape(2, 3), np.arange(11.0, 17).reshape(2, 3), np.full((2, 3), -5.0)
ANOTHER_ORDER = "layers whose calls come in another order there: a"
OTHER_PARTS = "layers called on other parts of the data there, compared by weights and gradients: a"


def calls(
    origins: dict[str, str], *outputs: np.ndarray, detail: str = "full", role: str = "output", behind: float = 1.0
) -> Recording:
    """A linear layer that gave these outputs, one for each call, and another one behind it."""
    model = Model(origins).linear("a", np.ones((4, 3)))
    for call, array in enumerate(outputs):
        model.entry(f"step0/forward/a#{call}:{role}", array)
    model.linear("z", np.ones((2, 4)), np.full((5, 2), behind))

    def kept(one: Entry) -> Entry:
        return replace(one, detail=detail, hash="") if one.key.path == "a" and detail != "full" else one

    found = model.recording()
    return Recording(tuple(map(kept, found.entries)), modules=found.modules)


def with_entries(recording: Recording, *more: Entry) -> Recording:
    return Recording((*recording.entries, *more), modules=recording.modules)


def order(pairing: Pairing) -> dict[int, int]:
    """The candidate's call for each call of the layer that has a partner."""
    pairs = [(pair.reference.key, pair.candidate.key) for pair in pairing.pairs if pair.reference.key.path == "a"]
    return {one.call: other.call for one, other in pairs if one.phase == "forward" and not one.run and one.step == 0}


def told(ours: list[np.ndarray], theirs: list[np.ndarray], **facts: Any) -> str:
    """The one word for calls on these outputs.

    What lies behind differs, so that calls for which nothing could be shown are compared, or missing.
    """
    pairing = matched(calls(TORCH, *ours, **facts), calls(PADDLE, *theirs, behind=9.0))
    return word(pairing)


def word(pairing: Pairing) -> str:
    found = order(pairing)
    if OTHER_PARTS in map(str, pairing.notes):
        assert not found
        return "rearranged"
    if ANOTHER_ORDER in map(str, pairing.notes):
        assert any(one != other for one, other in found.items())
        return "exchanged"
    assert all(one == other for one, other in found.items())
    return "as they come"


def test_calls_in_another_order_are_told_one_by_one() -> None:
    pairing = matched(calls(TORCH, A, B, C), calls(PADDLE, C, A, B))
    assert order(pairing) == {0: 1, 1: 2, 2: 0}
    assert [str(note) for note in pairing.notes] == [ANOTHER_ORDER]


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
    assert order(matched(calls(TORCH, A, A, B), calls(PADDLE, B, A, A))) == {0: 1, 1: 2, 2: 0}


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_summaries_say_no_order(side: str) -> None:
    detail = {"ours": "full", "theirs": "full", side: "summary"}
    pairing = matched(calls(TORCH, A, B, detail=detail["ours"]), calls(PADDLE, B, A, detail=detail["theirs"]))
    assert word(pairing) == "as they come"
    assert order(pairing) == {0: 0, 1: 1}


def test_only_first_outputs_of_the_first_step_count() -> None:
    more = (
        "step1/forward/a#0:output",
        "step0/forward/a#0:output.1",
        "step0/forward/a#0:input",
        "step0/backward/a#0:output",
        "float64@step0/forward/a#0:output",
    )
    theirs = with_entries(calls(PADDLE, A, B), *(entry_of(key, C) for key in more))
    assert word(matched(calls(TORCH, A, B), theirs)) == "as they come"
    assert order(matched(calls(TORCH, A, B, role="output.0"), calls(PADDLE, B, A, role="output.0"))) == {0: 1, 1: 0}


def test_one_call_on_all_rows_is_the_same_as_several_on_some() -> None:
    assert told([A, B], [np.concatenate([A, B])]) == "rearranged"
    assert told([np.concatenate([B, A])], [A, B]) == "rearranged"
    assert told([A, B], [np.stack([A, B])]) == "rearranged"
    assert told([A, B], [np.concatenate([A, C])]) == "as they come"
    assert told([A], [np.concatenate([A, B])]) == "rearranged", "a part of the rows"
    assert told([np.concatenate([A, B])], [B]) == "rearranged"
    assert told([A], [np.concatenate([C, B])]) == "as they come"
    assert told([A[:1]], [np.concatenate([A, B])]) == "rearranged"


def test_calls_on_other_data_are_left_to_the_weights_when_what_follows_is_the_same() -> None:
    other = np.concatenate([A, C])
    assert word(matched(calls(TORCH, A, B), calls(PADDLE, other, behind=9.0))) == "as they come"
    assert word(matched(calls(TORCH, A, B), calls(PADDLE, other))) == "rearranged"


def test_axes_in_another_order_are_no_other_call() -> None:
    assert told([A], [A.T.copy()]) == "as they come"


def test_rows_are_the_same_within_a_thousandth() -> None:
    whole = np.concatenate([A, B])
    assert told([A, B], [1.0009 * whole]) == "rearranged"
    assert told([A, B], [1.0012 * whole]) == "as they come"
    tall = np.full((4, 3), 8.0)
    part = np.full((2, 3), 8.0)
    # A row must be as near as a thousandth of the usual element: with three of them, 1/sqrt(3) of the row's length.
    assert told([part], [1.0005 * tall]) == "rearranged"
    assert told([part], [1.0007 * tall]) == "as they come"


def test_every_row_must_be_found() -> None:
    many = np.concatenate([A, B, C])
    assert told([np.concatenate([A[:1], B])], [many]) == "rearranged"
    assert told([np.concatenate([A[:1], 2 * B])], [many]) == "as they come"


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
def test_what_has_no_rows_alike_is_not_rearranged(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    assert told(ours, theirs) == "as they come"
    assert told(theirs, ours) == "as they come"


@pytest.mark.parametrize("detail", ["sketch", "summary"])
def test_rows_without_values_are_not_rearranged(detail: str) -> None:
    assert told([A, B], [np.concatenate([A, B])], detail=detail) == "as they come"


def test_wide_rows_are_told_apart() -> None:
    wide = np.random.default_rng(1).normal(size=(6, 40))
    assert told([wide[:3], wide[3:]], [wide]) == "rearranged"
    other = wide.copy()
    other[2, 17] += 1.0
    assert told([wide[:3], wide[3:]], [other]) == "as they come"


@pytest.mark.parametrize(("count", "answer"), [(1999, "rearranged"), (2000, "as they come")])
def test_too_many_rows_are_not_tried_against_each_other(count: int, answer: str) -> None:
    rows = np.random.default_rng(2).normal(size=(2001, 3))
    assert told([rows[:count]], [rows]) == answer
    assert told([rows[:1000], rows[1000:]], [rows]) == "rearranged", "as many rows here as there need no trying"
