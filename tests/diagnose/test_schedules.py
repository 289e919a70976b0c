"""Which parameter makes two learning rate curves meet."""

import math

import numpy as np
import pytest

from reprod_log import Recording, align
from reprod_log.diagnose.finding import Finding, What, told
from reprod_log.diagnose.schedules import explain
from reprod_log.messages import words

STEPS = np.arange(12)
STEP_DECAY = 0.1 * 0.5 ** (STEPS // 4)


def cosine(step: float, cycles: float, *, warm_up: int = 345, total: int = 1024, rate: float = 3e-5) -> float:
    if step < warm_up:
        return rate * step / warm_up
    progress = (step - warm_up) / (total - warm_up)
    return rate * max(0.0, 0.5 * (1 + math.cos(math.pi * cycles * 2 * progress)))


def found(ours: np.ndarray, theirs: np.ndarray, steps: np.ndarray = STEPS) -> Finding:
    first = {"step": 0, "ours": ours[0], "theirs": theirs[0]}
    return told(What("cause.learning_rate", {"name": "lr", "what": explain(steps, ours, theirs), **first}))


def said(ours: np.ndarray, theirs: np.ndarray, steps: np.ndarray = STEPS) -> str:
    one = found(ours, theirs, steps)
    assert str(one.advice)
    return str(one.cause)


@pytest.mark.parametrize(
    ("theirs", "sentence"),
    [
        (np.full(12, 0.1), "never stepped"),
        (0.1 * 0.5 ** ((STEPS + 1) // 4), "one step ahead"),
        (0.1 * 0.5 ** (np.maximum(STEPS - 1, 0) // 4), "one step behind"),
        (3 * STEP_DECAY, "3 times"),
        (0.1 * 0.25 ** (STEPS // 4), "every drop is to 0.25 of the rate instead of 0.5 (gamma)"),
        (0.1 * 0.5 ** (STEPS // 2), "2 times per step"),
        (0.01 + 0.9 * STEP_DECAY, "ends about 0.01 higher"),
    ],
)
def test_one_change_of_a_step_schedule_is_named(theirs: np.ndarray, sentence: str) -> None:
    assert sentence in said(STEP_DECAY, theirs)


def test_single_drop_at_another_step_shows_no_shift_of_the_whole_schedule() -> None:
    ours, theirs = (0.1 * 0.3 ** (STEPS // step) for step in (6, 7))
    assert "falls at other steps" in said(ours, theirs)
    assert "at 6 in the reference, at 7 in the candidate" in said(ours, theirs)


def test_polynomial_end_is_named_when_it_is_not_zero() -> None:
    ours = 0.02 * (1 - STEPS / 20)
    assert "ends about 0.0001 higher" in said(ours, (0.02 - 1e-4) * (1 - STEPS / 20) + 1e-4)


def test_another_warm_up_is_named_when_only_the_start_differs() -> None:
    ours = 0.1 * np.minimum((STEPS + 1) / 4, 1)
    assert "warm-up" in said(ours, 0.1 * np.minimum((STEPS + 1) / 6, 1))


def test_unrelated_curves_are_not_explained() -> None:
    noise = np.random.default_rng(0).random(12)
    assert found(STEP_DECAY, noise).kind == "hint"


def test_number_of_cycles_is_named_from_five_logged_rates() -> None:
    """The check published for a BERT pipeline: five rates of a cosine schedule, half a cycle against a whole one."""
    at = (100, 300, 500, 700, 900)
    ours = {f"step_{step}_cosine_lr": cosine(step, 0.5) for step in at}
    theirs = {f"step_{step}_cosine_lr": cosine(step, 1.0) for step in at}
    found = align(Recording.from_arrays(ours), Recording.from_arrays(theirs))
    causes = [one for one in found.findings if one.rule == "learning_rate"]
    assert len(causes) == 1
    assert "num_cycles" in str(causes[0].cause)
    assert "2 times" in str(causes[0].cause)


def test_equal_schedules_are_left_in_peace() -> None:
    rates = {f"step_{step}_cosine_lr": cosine(step, 0.5) for step in range(0, 1000, 100)}
    found = align(Recording.from_arrays(rates), Recording.from_arrays(rates))
    assert not [one for one in found.findings if one.kind == "cause"]


def test_another_base_with_the_same_end_is_named() -> None:
    shape = 0.5 * (1 + np.cos(np.pi * STEPS / 20))
    assert "base rate differs: 0.1 in the reference, 0.2 in the candidate" in said(
        0.01 + 0.09 * shape, 0.01 + 0.19 * shape
    )


def test_final_rate_that_is_too_low_is_to_be_set_higher() -> None:
    shape = 0.5 * (1 + np.cos(np.pi * STEPS / 20))
    one = found(0.01 + 0.09 * shape, 0.1 * shape)
    assert "lower" in str(one.cause)
    assert "higher" in words()(one.advice)
