"""Which argument of one module is which of the other's, when two authors wrote the modules."""

from __future__ import annotations

import numpy as np

from pairing.made import FIRST, PADDLE, TORCH, Model, matched

A, B = np.arange(1.0, 5), np.arange(5.0, 9)


def block(origins: dict[str, str], *given: tuple[str, np.ndarray]) -> Model:
    """A module of one's own around a linear layer, called with these arguments."""
    model = Model(origins).module("m", "")
    for role, array in given:
        model.entry(f"step0/forward/m#0:input.{role}", array)
    model.linear("m.fc", FIRST, np.ones((5, 4)))
    return model.entry("step0/forward/m#0:output", np.ones((5, 4)))


def partner(role: str, array: np.ndarray, *others: tuple[str, np.ndarray]) -> str | None:
    found = matched(block(TORCH, (role, array)), block(PADDLE, *others)).pairs
    roles = {pair.reference.key.role: pair.candidate.key.role for pair in found}
    return roles[f"input.{role}"].removeprefix("input.") if f"input.{role}" in roles else None


def test_argument_of_the_same_role_is_taken_when_it_is_the_only_one_of_its_shape() -> None:
    assert partner("0", A, ("0", B), ("1", np.ones(3))) == "0"
    assert partner("0", A, ("0", np.ones(3)), ("1", np.ones(5))) is None
    assert partner("0", A) is None


def test_values_say_which_of_several_it_is() -> None:
    assert partner("0", A, ("0", B), ("1", A)) == "1"
    assert partner("0", A, ("0", A), ("1", A)) == "0"
    assert partner("0", A, ("0", B), ("1", A), ("2", A)) == "0", "two fit: the role decides"
    assert partner("0", A, ("0", 2 * A), ("1", B)) == "0", "none fits: the role decides"


def test_argument_of_another_role_must_have_the_same_values() -> None:
    assert partner("x", A, ("0", A)) == "0"
    assert partner("x", A, ("0", B), ("1", A)) == "1"
    assert partner("x", A, ("0", B)) is None
    assert partner("x", A, ("0", 1.0009 * A)) == "0"
    assert partner("x", A, ("0", 1.0011 * A)) is None
    thousand = np.array([1000.0, 0.0])
    assert partner("x", thousand, ("0", np.array([1001.0, 0.0]))) is None, "exactly a thousandth is not below it"
