"""Learning rates: the whole schedule, what the optimizer really uses, and a limit that fits the rates."""

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from torch.optim import lr_scheduler

from reprod_log import Recording
from reprod_log.errors import UsageError
from reprod_log.steps import lr

STEPS = 90


def torch_side(make: Any, *, rate: float = 0.1) -> tuple[Any, Any]:
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=rate)
    return optimizer, make(optimizer)


def paddle_side(scheduler: Any) -> tuple[Any, Any]:
    return paddle.optimizer.SGD(scheduler, parameters=paddle.nn.Linear(2, 2).parameters()), scheduler


PAIRS = {
    "step": (
        lambda optimizer: lr_scheduler.StepLR(optimizer, 30, 0.1),
        lambda: paddle.optimizer.lr.StepDecay(0.1, 30, 0.1),
    ),
    "cosine": (
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        lambda: paddle.optimizer.lr.CosineAnnealingDecay(0.1, STEPS),
    ),
    "exponential": (
        lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.97),
        lambda: paddle.optimizer.lr.ExponentialDecay(0.1, 0.97),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_right_schedule_passes_at_every_step(name: str) -> None:
    ours, theirs = PAIRS[name]
    alignment = lr.run(torch_side(ours), paddle_side(theirs()), steps=STEPS)
    assert alignment.passed
    assert len(alignment.verdict.judgements) == STEPS
    assert (alignment.reference.provenance.framework, alignment.candidate.provenance.framework) == ("torch", "paddle")


def test_off_by_one_fails_where_it_first_shows() -> None:
    ours, _ = PAIRS["step"]
    alignment = lr.run(torch_side(ours), paddle_side(paddle.optimizer.lr.StepDecay(0.1, 31, 0.1)), steps=STEPS)
    assert not alignment.passed
    assert alignment.first_divergence is not None
    assert alignment.first_divergence.key == "step30/lr/schedule:group0"


def test_other_end_fails_only_when_the_whole_schedule_is_compared() -> None:
    ours = torch_side(lambda optimizer: lr_scheduler.PolynomialLR(optimizer, STEPS, 1.0), rate=1e-3)

    def polynomial() -> Any:
        return paddle.optimizer.lr.PolynomialDecay(1e-3, STEPS, end_lr=1e-3 * 1e-4)

    alignment = lr.run(ours, paddle_side(polynomial()), steps=STEPS)
    assert not alignment.passed
    # The difference at the second step is 1e-9 of the rate times 1000: an absolute limit of 1e-6 would let it pass.
    worst = max(row.measurement.max_abs for row in alignment.comparison.rows if row.measurement)
    assert worst < 1e-6


def test_last_lr_is_read_where_get_lr_would_compute_another() -> None:
    scheduler = paddle.optimizer.lr.MultiplicativeDecay(0.5, lambda epoch: 0.9)
    alignment = lr.run(lambda step: 0.5 * 0.9**step, scheduler, steps=10)
    assert alignment.passed


def test_given_schedule_stays_where_it_was() -> None:
    optimizer, scheduler = torch_side(lambda one: lr_scheduler.ExponentialLR(one, 0.5))
    decay = paddle.optimizer.lr.ExponentialDecay(0.1, 0.5)
    lr.run((optimizer, scheduler), paddle_side(decay), steps=5)
    assert (optimizer.param_groups[0]["lr"], scheduler.last_epoch) == (0.1, 0)
    assert (decay.last_lr, decay.last_epoch) == (0.1, 0)


def test_groups_and_several_schedules_have_their_own_limits() -> None:
    big, small = np.linspace(1.0, 0.5, 4), np.linspace(1e-6, 5e-7, 4)
    wrong = small * (1 + 1e-6)
    assert lr.run({"big": big, "small": small}, {"big": big, "small": small}, steps=4).passed
    alignment = lr.run({"big": big, "small": small}, {"big": big, "small": wrong}, steps=4)
    assert [one.status.value for one in alignment.verdict.judgements] == ["PASS"] * 4 + ["FAIL"] * 4


def test_scheduler_that_is_not_the_optimizers_own_is_refused() -> None:
    optimizer, _ = paddle_side(paddle.optimizer.lr.StepDecay(0.1, 30))
    with pytest.raises(UsageError, match="does not use this scheduler"):
        lr.record((optimizer, paddle.optimizer.lr.StepDecay(0.1, 30)), steps=3)


def test_scheduler_that_watches_a_score_is_told_it() -> None:
    ours = torch_side(lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=2))
    theirs = paddle.optimizer.lr.ReduceOnPlateau(0.1, patience=2)
    alignment = lr.run(ours, paddle_side(theirs), steps=12, metrics=[1.0] * 12)
    assert alignment.passed
    rates = {row.measurement.reference.mean for row in alignment.comparison.rows if row.measurement}
    assert len(rates) > 2


def test_files_with_classic_names_are_held_to_a_share_of_the_largest_rate(tmp_path: Path) -> None:
    rates = {f"step_{step}_linear_lr": np.array([3e-5 * (1 - step / 1000)]) for step in (100, 500, 999)}
    Recording.from_arrays(rates).save(tmp_path / "lr_torch.npy")
    Recording.from_arrays(rates).save(tmp_path / "lr_same.npy")
    Recording.from_arrays({key: rate + 1e-9 for key, rate in rates.items()}).save(tmp_path / "lr_paddle.npy")
    assert lr.run(tmp_path / "lr_torch.npy", tmp_path / "lr_same.npy").passed
    assert not lr.run(tmp_path / "lr_torch.npy", tmp_path / "lr_paddle.npy").passed


def test_rates_stored_in_float32_are_held_to_float32() -> None:
    rates = np.linspace(0.1, 0.01, 7)
    narrow = Recording.from_arrays({"lr": rates.astype(np.float32)})
    assert lr.compare(narrow, Recording.from_arrays({"lr": rates})).passed
    assert not lr.compare(narrow, Recording.from_arrays({"lr": rates * (1 + 1e-5)})).passed


def test_nan_never_passes() -> None:
    assert not lr.run([0.1, float("nan")], [0.1, float("nan")], steps=2).passed


def test_what_has_no_rate_is_refused() -> None:
    with pytest.raises(UsageError, match="give a scheduler"):
        lr.record(object(), steps=3)
    with pytest.raises(UsageError, match="nothing to compare"):
        lr.record([0.1], steps=0)
