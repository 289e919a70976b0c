"""Layers of two branches that run in the other order, told apart by what they give and by their weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairing.made import PADDLE, TORCH, Model
from reprod_log.pairing import match
from reprod_log.recording import Entry, Recording

WEIGHTS = [np.arange(6.0).reshape(2, 3) + 10 * place for place in range(4)]
OUTPUTS = [np.full((5, 2), value) for value in (1.0, 2.0, 4.0, 8.0)]


def side(
    names: str, order: list[int], *, outputs: bool = True, weights: bool = True, origins: dict[str, str] = TORCH
) -> Recording:
    """One linear layer for each name, in the order in which they run, with what belongs to this place of the lists."""
    model = Model(origins)
    for name, place in zip(names, order, strict=True):
        model.entry(f"step0/forward/{name}#0:input.0", np.full((5, 3), ord(name)))
        model.linear(name, WEIGHTS[place], OUTPUTS[place])
    entries = [
        one
        for one in model.recording().entries
        if (outputs or not one.key.role.startswith("output")) and (weights or one.key.phase != "parameter")
    ]
    return Recording(tuple(entries), modules=tuple(model.modules))


def exchanged(ours: Recording, theirs: Recording, **options: Any) -> dict[str, str]:
    """The partner of each layer, by the gradient of its weight; every other entry of a layer follows it."""
    pairs = {
        (pair.reference.key.path, pair.candidate.key.path)
        for pair in match(ours, theirs, **options).pairs
        if pair.reference.key.phase in ("gradient", "parameter")
    }
    return {one.removesuffix(".weight"): other.removesuffix(".weight") for one, other in pairs}


def found_by(ours: Recording, theirs: Recording) -> dict[str, str]:
    """How the partner of each layer's output was found."""
    found = match(ours, theirs).pairs
    return {pair.reference.key.path: pair.how for pair in found if pair.reference.key.role == "output"}


@pytest.mark.parametrize("known", ["outputs", "weights", "both"])
def test_two_branches_in_the_other_order_are_told_by_what_was_recorded(known: str) -> None:
    facts = {"outputs": known != "weights", "weights": known != "outputs"}
    ours, theirs = side("ab", [0, 1], **facts), side("xy", [1, 0], origins=PADDLE, **facts)
    assert exchanged(ours, theirs) == {"a": "y", "b": "x"}
    same = side("xy", [0, 1], origins=PADDLE, **facts)
    assert exchanged(ours, same) == {"a": "x", "b": "y"}


def test_what_was_told_by_values_says_so() -> None:
    ours = side("abc", [0, 1, 2])
    assert found_by(ours, side("xyz", [0, 2, 1])) == {"a": "order", "b": "value", "c": "value"}


def test_nothing_recorded_leaves_the_order() -> None:
    ours, theirs = (side(names, [0, 1], outputs=False, weights=False) for names in ("ab", "xy"))
    assert exchanged(ours, theirs) == {"a": "x", "b": "y"}
    half = side("xy", [1, 0], weights=False, origins=PADDLE)
    assert exchanged(side("ab", [0, 1], outputs=False), half) == {"a": "x", "b": "y"}
    weights_here = side("ab", [0, 1], outputs=False)
    assert exchanged(weights_here, side("xy", [1, 0], weights=False, outputs=False)) == {"a": "x", "b": "y"}


def test_three_in_a_ring_are_exchanged_and_those_that_agree_stay() -> None:
    ours, theirs = side("abc", [0, 1, 2]), side("xyz", [2, 0, 1])
    assert exchanged(ours, theirs) == {"a": "y", "b": "z", "c": "x"}
    assert exchanged(ours, side("xyz", [0, 2, 1])) == {"a": "x", "b": "z", "c": "y"}


def test_name_that_decided_is_not_put_in_question() -> None:
    ours = side("ab", [0, 1])
    assert exchanged(ours, side("ab", [1, 0])) == {"a": "a", "b": "b"}
    assert exchanged(ours, side("xy", [1, 0]), rename={"a": "x", "b": "y"}) == {"a": "x", "b": "y"}


def test_layers_of_other_shapes_do_not_change_places() -> None:
    ours, theirs = Model(), Model()
    for model, names, values in ((ours, "ab", (1.0, 2.0)), (theirs, "xy", (2.0, 1.0))):
        for name, value, width in zip(names, values, (3, 4), strict=True):
            model.linear(name, np.full((2, width), value), np.full((5, 2), value))
    assert exchanged(ours.recording(), theirs.recording()) == {"a": "x", "b": "y"}


def test_layer_that_fits_two_or_none_keeps_its_partner() -> None:
    ours = side("abc", [0, 1, 2], weights=False)
    assert exchanged(ours, side("xyz", [1, 0, 0], weights=False)) == {"a": "x", "b": "y", "c": "z"}
    assert exchanged(ours, side("xyz", [1, 3, 0], weights=False)) == {"a": "x", "b": "y", "c": "z"}
    # The two that found each other's partner change places, the third has a defect.
    assert exchanged(ours, side("xyz", [1, 0, 3], weights=False)) == {"a": "y", "b": "x", "c": "z"}


def test_two_that_want_the_same_partner_keep_theirs() -> None:
    ours = side("acb", [0, 0, 1], weights=False)
    assert exchanged(ours, side("xyz", [1, 2, 0], weights=False)) == {"a": "x", "c": "y", "b": "z"}


def test_one_layer_that_differs_has_a_defect() -> None:
    ours = side("ab", [0, 1], weights=False)
    assert exchanged(ours, side("xy", [0, 2], weights=False)) == {"a": "x", "b": "y"}


@pytest.mark.parametrize(("count", "partner"), [(64, "x1"), (66, "x0")])
def test_too_many_layers_are_not_tried_against_each_other(count: int, partner: str) -> None:
    given = [[float(2**place), 0.0] for place in range(count)]
    crossed = [given[place ^ 1] for place in range(count)]
    assert exchanged(outputs("a", *given), outputs("x", *crossed))["a0"] == partner


def outputs(path: str, *values: list[float]) -> Recording:
    """Linear layers that gave these values, and of which nothing else is known."""
    model = Model()
    for place, value in enumerate(values):
        model.linear(f"{path}{place}", WEIGHTS[0], np.array([value]))
    given = tuple(one for one in model.recording().entries if one.key.phase != "parameter")
    return Recording(given, modules=tuple(model.modules))


def test_doubt_begins_beyond_a_defect_and_outputs_must_be_the_same() -> None:
    ours = outputs("a", [20.0, 0.0], [21.0, 0.0])
    assert exchanged(ours, outputs("x", [21.0, 0.0], [20.0, 0.0]))["a0"] == "x0", "within what a defect may do"
    ours = outputs("a", [1000.0, 0.0], [3000.0, 0.0])
    assert exchanged(ours, outputs("x", [3000.0, 0.0], [1000.9, 0.0]))["a0"] == "x1"
    assert exchanged(ours, outputs("x", [3000.0, 0.0], [1001.1, 0.0]))["a0"] == "x0"


def weights_changed(recording: Recording, change: Any) -> Recording:
    def changed(one: Entry) -> Entry:
        return change(one) if one.key.phase == "parameter" else one

    return Recording(tuple(map(changed, recording.entries)), modules=recording.modules)


@pytest.mark.parametrize(("factor", "partner"), [(1.04, "y"), (1.06, "x")])
def test_weights_may_have_moved_by_a_step(factor: float, partner: str) -> None:
    theirs = weights_changed(
        side("xy", [1, 0], outputs=False, origins=PADDLE),
        lambda one: replace(one, read=lambda: factor * one.array(), hash=""),
    )
    assert exchanged(side("ab", [0, 1], outputs=False), theirs)["a"] == partner


@pytest.mark.parametrize("lacking", ["ours", "theirs"])
@pytest.mark.parametrize("detail", ["sketch", "summary"])
def test_weights_without_values_say_nothing(lacking: str, detail: str) -> None:
    sides = {"ours": side("ab", [0, 1], outputs=False), "theirs": side("xy", [1, 0], outputs=False, origins=PADDLE)}
    assert exchanged(*sides.values())["a"] == "y"
    sides[lacking] = weights_changed(sides[lacking], lambda one: replace(one, detail=detail, hash=""))
    assert exchanged(*sides.values())["a"] == "x"
