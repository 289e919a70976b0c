"""Layers of two branches that run in the other order, told apart by what they give and by their weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairing.made import PADDLE, TORCH, Model
from reprod_log.pairing import match
from reprod_log.pairing.crossings import find_crossings
from reprod_log.pairing.links import AS_IS, Link
from reprod_log.recording import Entry, Recording

RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(size=(4, 2, 3))
OUTPUTS = RANDOM.normal(size=(4, 5, 2))


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


@pytest.mark.parametrize("known", ["outputs", "weights", "both"])
def test_two_branches_in_the_other_order_are_told_by_what_was_recorded(known: str) -> None:
    facts = {"outputs": known != "weights", "weights": known != "outputs"}
    ours, theirs = side("ab", [0, 1], **facts), side("xy", [1, 0], origins=PADDLE, **facts)
    assert exchanged(ours, theirs) == {"a": "y", "b": "x"}
    same = side("xy", [0, 1], origins=PADDLE, **facts)
    assert exchanged(ours, same) == {"a": "x", "b": "y"}


def test_what_was_told_by_values_says_so() -> None:
    ours = side("abc", [0, 1, 2])
    found = match(ours, side("xyz", [0, 2, 1])).pairs
    assert {pair.how for pair in found if pair.reference.key.role == "output"} == {"value"}


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


def test_one_layer_that_differs_has_a_defect() -> None:
    ours = side("ab", [0, 1], weights=False)
    assert exchanged(ours, side("xy", [0, 2], weights=False)) == {"a": "x", "b": "y"}


@pytest.mark.parametrize("lacking", ["ours", "theirs"])
@pytest.mark.parametrize("detail", ["sketch", "summary"])
def test_weights_without_values_say_nothing(lacking: str, detail: str) -> None:
    sides = {"ours": side("ab", [0, 1], outputs=False), "theirs": side("xy", [1, 0], outputs=False, origins=PADDLE)}
    assert exchanged(*sides.values())["a"] == "y"

    def without(one: Entry) -> Entry:
        return replace(one, detail=detail, hash="") if one.key.phase == "parameter" else one

    bare = sides[lacking]
    sides[lacking] = Recording(tuple(map(without, bare.entries)), modules=bare.modules)
    assert exchanged(*sides.values())["a"] == "x"


def links(pairs: dict[str, str]) -> dict[str, Link]:
    """The map that gives each layer of the candidate the weight of one of the reference, all of one shape."""
    return {
        f"{target}.weight": Link(f"{target}.weight", (4,), (f"{source}.weight",), ((4,),), AS_IS, "values")
        for target, source in pairs.items()
    }


CROSSED = {
    "one word each": {"up": "gate_proj", "gate": "up_proj"},
    "letters for words": {"f": "gate", "g": "filter"},
    "queries and keys": {"wq": "k_proj", "wk": "q_proj"},
    "the same two names": {"norm2": "norm3", "norm3": "norm2", "norm1": "norm1"},
}
STRAIGHT = {
    "a word that is only like one of two": {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    },
    "words for a kind of layer": {"mixers.0.norm_t": "layers.0.n1", "ln": "norm"},
    "a letter": {"dec.0.c2": "u1.conv2", "upsample": "upc"},
    "counted from another number": {"conv0": "conv1", "conv1": "conv2"},
    "the same names": {"linear1": "linear1", "linear2": "linear2"},
}


@pytest.mark.parametrize("pairs", CROSSED.values(), ids=CROSSED.keys())
def test_names_that_go_together_the_other_way_round_are_told(pairs: dict[str, str]) -> None:
    assert len(find_crossings(links(pairs), {})) == 1


@pytest.mark.parametrize("pairs", STRAIGHT.values(), ids=STRAIGHT.keys())
def test_names_that_say_nothing_of_an_exchange_are_no_doubt(pairs: dict[str, str]) -> None:
    assert find_crossings(links(pairs), {}) == ()
