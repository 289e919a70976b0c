"""A short selection of the zoo: mistakes are found, placed and named; correct ports pass without a cause."""

from pathlib import Path

import pytest

from zoo.healthy import all_healthy
from zoo.mistakes import TABLES, all_mistakes
from zoo.mistakes.programs import LINES
from zoo.outcome import named, placed, run

MISTAKES, HEALTHY = all_mistakes(), all_healthy()


def test_the_zoo_is_as_large_as_promised() -> None:
    assert len(MISTAKES) >= 250
    bases = {mistake.base.__module__ for mistake in MISTAKES.values() if mistake.rules}
    assert len(bases) + len({line.program for line in LINES}) >= 15


def test_mistakes_never_change_halves() -> None:
    """One that did would make the figures of the scored half worthless."""
    halves = {"adam_beta1": "scored", "adam_beta2": "development", "bn_eps": "scored", "weights_swapped": "scored"}
    assert {name: MISTAKES[name].half for name in halves} == halves
    scored = sum(one.half == "scored" for one in MISTAKES.values())
    assert 0.4 < scored / len(MISTAKES) < 0.6


def test_names_of_files_do_not_give_the_answer_away() -> None:
    """Reports quote files and lines, and an expected word in a file's name would be found there."""
    files = [Path(table.__file__).name for table in TABLES]
    told = [
        (name, word)
        for name, one in MISTAKES.items()
        if one.rules
        for word in one.words
        for file in files
        if word in file
    ]
    assert not told
    assert not [(one.name, word) for one in LINES for word in one.words if word in f"{one.program}.py"]


@pytest.mark.parametrize("name", [name for name, one in MISTAKES.items() if one.quick])
def test_mistake_is_found_placed_and_named(name: str) -> None:
    mistake = MISTAKES[name]
    outcome = run(mistake.planted(0), name, 0)
    assert placed(mistake, outcome.first["V"]), outcome.first
    assert named(mistake, outcome), outcome.causes


@pytest.mark.parametrize("name", [name for name, one in HEALTHY.items() if one.quick])
def test_correct_port_passes_and_no_cause_is_named(name: str) -> None:
    outcome = run(HEALTHY[name].make(0), name, 0)
    assert outcome.first["V"] == ""
    assert outcome.causes == ()


@pytest.mark.parametrize("name", ["decay_missing", "weights_swapped"])
def test_mistake_has_no_second_cause(name: str) -> None:
    """What follows from a mistake (statistics of other weights, the partner of an exchange) is no cause beside it."""
    mistake = MISTAKES[name]
    outcome = run(mistake.planted(0), name, 0)
    assert named(mistake, outcome)
    assert len(outcome.causes) == 1, outcome.causes
