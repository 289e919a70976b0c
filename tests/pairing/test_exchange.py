"""Layers of two branches that run in the other order, told apart by what they give and by their weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from pairing.test_matching_cases import PADDLE, Model
from reprod_log.pairing import exchange
from reprod_log.pairing.exchange import exchange_branches
from reprod_log.pairing.unit import PIECE
from reprod_log.pairing.units import recorded_units
from reprod_log.pairing.weight_map import UnitPair
from reprod_log.recording import Recording

WEIGHTS = [np.arange(6.0).reshape(2, 3) + 10 * place for place in range(4)]
OUTPUTS = [np.full((5, 2), value) for value in (1.0, 2.0, 4.0, 8.0)]


def side(names: str, order: list[int], *, outputs: bool = True, weights: bool = True, origins: Any = None) -> Recording:
    """One linear layer for each name, with what belongs to this place of the lists above."""
    model = Model() if origins is None else Model(origins)
    for name, place in zip(names, order, strict=True):
        model.linear(name, WEIGHTS[place], OUTPUTS[place])
    entries = [
        one
        for one in model.recording().entries
        if (outputs or one.key.phase != "forward") and (weights or one.key.phase != "parameter")
    ]
    return Recording(tuple(entries), modules=tuple(model.modules))


def paired(ours: Recording, theirs: Recording, how: str = "execution order", **facts: Any) -> list[UnitPair]:
    pairs = zip(recorded_units(ours), recorded_units(theirs), strict=True)
    return [UnitPair(replace(one, **facts), other, how, "a note") for one, other in pairs]


def exchanged(ours: Recording, theirs: Recording, how: str = "execution order", **facts: Any) -> dict[str, str]:
    """The partner of each layer by name; those found by values are marked."""
    found = exchange_branches(paired(ours, theirs, how, **facts), ours, theirs)
    assert all(pair.note == "a note" for pair in found)
    return {pair.source.path: pair.target.path + ("!" if pair.how == "values" else "") for pair in found}


@pytest.mark.parametrize("known", ["outputs", "weights", "both"])
def test_two_branches_in_the_other_order_are_told_by_what_was_recorded(known: str) -> None:
    facts = {"outputs": known != "weights", "weights": known != "outputs"}
    ours, theirs = side("ab", [0, 1], **facts), side("xy", [1, 0], origins=PADDLE, **facts)
    assert exchanged(ours, theirs) == {"a": "y!", "b": "x!"}
    same = side("xy", [0, 1], origins=PADDLE, **facts)
    assert exchanged(ours, same) == {"a": "x", "b": "y"}


def test_nothing_recorded_leaves_the_order() -> None:
    ours, theirs = (side(names, [0, 1], outputs=False, weights=False) for names in ("ab", "xy"))
    assert exchanged(ours, theirs) == {"a": "x", "b": "y"}
    half = side("xy", [1, 0], weights=False, origins=PADDLE)
    assert exchanged(side("ab", [0, 1], outputs=False), half) == {"a": "x", "b": "y"}
    weights_here = side("ab", [0, 1], outputs=False)
    assert exchanged(weights_here, side("xy", [1, 0], weights=False, outputs=False)) == {"a": "x", "b": "y"}


def test_three_in_a_ring_are_exchanged_and_those_that_agree_stay() -> None:
    ours, theirs = side("abc", [0, 1, 2]), side("xyz", [2, 0, 1])
    assert exchanged(ours, theirs) == {"a": "y!", "b": "z!", "c": "x!"}
    assert exchanged(ours, side("xyz", [0, 2, 1])) == {"a": "x", "b": "z!", "c": "y!"}


def test_name_that_decided_is_not_put_in_question() -> None:
    ours, theirs = side("ab", [0, 1]), side("xy", [1, 0])
    for how in ("name", "rename"):
        assert exchanged(ours, theirs, how) == {"a": "x", "b": "y"}


def test_pieces_and_tensors_outside_of_layers_are_left_alone() -> None:
    ours, theirs = side("ab", [0, 1]), side("xy", [1, 0])
    assert exchanged(ours, theirs, kind="Parameter") == {"a": "x", "b": "y"}
    assert exchanged(ours, theirs, class_name=PIECE) == {"a": "x", "b": "y"}
    pairs = [replace(pair, target=replace(pair.target, class_name=PIECE)) for pair in paired(ours, theirs)]
    assert [pair.target.path for pair in exchange_branches(pairs, ours, theirs)] == ["x", "y"]


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
    assert exchanged(ours, side("xyz", [1, 0, 3], weights=False)) == {"a": "y!", "b": "x!", "c": "z"}


def test_two_that_want_the_same_partner_keep_theirs() -> None:
    ours = side("aab".replace("aa", "ac"), [0, 0, 1], weights=False)
    assert exchanged(ours, side("xyz", [1, 2, 0], weights=False)) == {"a": "x", "c": "y", "b": "z"}


def test_one_layer_that_differs_has_a_defect() -> None:
    ours = side("ab", [0, 1], weights=False)
    assert exchanged(ours, side("xy", [0, 2], weights=False)) == {"a": "x", "b": "y"}


def test_too_many_layers_are_not_tried_against_each_other() -> None:
    ours, theirs = side("abc", [0, 1, 2]), side("xyz", [2, 0, 1])
    with mock.patch.object(exchange, "_MOST", 3):
        assert exchanged(ours, theirs)["a"] == "y!"
    with mock.patch.object(exchange, "_MOST", 2):
        assert exchanged(ours, theirs)["a"] == "x"


def outputs(path: str, *values: list[float]) -> Recording:
    """Linear layers that gave these values, and nothing else about them."""
    model = Model()
    for place, value in enumerate(values):
        model.linear(f"{path}{place}", WEIGHTS[0], np.array([value]))
    given = tuple(one for one in model.recording().entries if one.key.phase == "forward")
    return Recording(given, modules=tuple(model.modules))


def test_doubt_begins_beyond_a_defect_and_outputs_must_be_the_same() -> None:
    ours = outputs("a", [20.0, 0.0], [21.0, 0.0])
    assert exchanged(ours, outputs("x", [21.0, 0.0], [20.0, 0.0]))["a0"] == "x0", "within what a defect may do"
    ours = outputs("a", [1000.0, 0.0], [3000.0, 0.0])
    assert exchanged(ours, outputs("x", [3000.0, 0.0], [1000.9, 0.0]))["a0"] == "x1!"
    assert exchanged(ours, outputs("x", [3000.0, 0.0], [1001.0, 0.0]))["a0"] == "x0"


def test_weights_may_have_moved_by_a_step() -> None:
    ours = side("ab", [0, 1], outputs=False)
    for factor, partner in ((1.04, "y!"), (1.06, "x")):
        moved = [
            replace(one, read=lambda one=one, factor=factor: factor * one.array(), hash="")
            if one.key.phase == "parameter"
            else one
            for one in side("xy", [1, 0], outputs=False, origins=PADDLE).entries
        ]
        theirs = Recording(tuple(moved), modules=side("xy", [1, 0], origins=PADDLE).modules)
        assert exchanged(ours, theirs)["a"] == partner


def test_distance_of_weights_is_relative_and_in_the_reference_s_layout() -> None:
    ours, theirs = side("a", [0]), side("x", [1], origins=PADDLE)
    (one,), (other,) = recorded_units(ours), recorded_units(theirs)
    expected = np.linalg.norm(WEIGHTS[0] - WEIGHTS[1]) / np.linalg.norm(WEIGHTS[0])
    assert exchange._Weights(ours, theirs).differ(one, other) == pytest.approx(expected, rel=1e-12)
    zero = Model().linear("a", np.zeros((2, 3))).recording()
    (nothing,) = recorded_units(zero)
    assert exchange._Weights(zero, theirs).differ(nothing, other) == pytest.approx(np.linalg.norm(WEIGHTS[1]))


@pytest.mark.parametrize("lacking", ["ours", "theirs"])
@pytest.mark.parametrize("detail", ["sketch", "summary", "none"])
def test_weights_without_values_say_nothing(lacking: str, detail: str) -> None:
    sides = {"ours": side("a", [0]), "theirs": side("x", [1], origins=PADDLE)}
    found = sides[lacking]
    kept = [one for one in found.entries if one.key.phase != "parameter"] if detail == "none" else [
        replace(one, detail=detail) for one in found.entries  # type: ignore[arg-type]
    ]  # fmt: skip
    units = [recorded_units(one)[0] for one in sides.values()]
    sides[lacking] = Recording(tuple(kept), modules=found.modules)
    assert np.isnan(exchange._Weights(sides["ours"], sides["theirs"]).differ(*units))
