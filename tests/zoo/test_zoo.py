"""A short selection of the zoo: mistakes are found, placed and named; correct ports pass without a cause."""

import pytest

from zoo.outcome import named, placed, run
from zoo.run import all_healthy, all_mistakes

MISTAKES, HEALTHY = all_mistakes(), all_healthy()


def test_the_zoo_is_as_large_as_promised() -> None:
    assert len(MISTAKES) >= 60
    assert len({mistake.base.__module__ for mistake in MISTAKES.values()}) >= 6


@pytest.mark.parametrize("name", [name for name, one in MISTAKES.items() if one.quick])
def test_mistake_is_found_placed_and_named(name: str) -> None:
    mistake = MISTAKES[name]
    trial = mistake.base(0)
    outcome = run(mistake.plant(trial) or trial, name, 0)
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
    trial = mistake.base(0)
    outcome = run(mistake.plant(trial) or trial, name, 0)
    assert named(mistake, outcome)
    assert len(outcome.causes) == 1, outcome.causes
