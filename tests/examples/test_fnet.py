"""examples/fnet: the learning-rate and backward checks, right and as published."""

from __future__ import annotations

import pytest

LOSSES = [f"loss_{index}" for index in range(10)]
RATES = [f"step_{step}_{name}_lr" for name in ("linear", "cosine", "polynomial") for step in (100, 300, 500, 700, 900)]


@pytest.fixture(scope="module")
def fnet(copy_example):
    return copy_example("fnet")


def test_schedules_are_equal_at_every_step_when_the_parameters_are(fnet):
    printed = fnet.check("compare_scheduler.py")

    log = fnet.log("scheduler_diff.log")
    assert list(log.differences) == RATES
    assert log.verdict == "diff check passed"
    assert set(log.differences.values()) == {0.0}
    for name in ("linear", "cosine", "polynomial"):
        assert f"{name}: over all 1024 steps at most 0.000e+00" in printed


@pytest.mark.whole
def test_published_cosine_differences_come_out_to_the_last_digit(fnet):
    printed = fnet.check("compare_scheduler.py", "--as-published", exit_code=1)

    log = fnet.log("scheduler_diff.log")
    assert log.verdict == "diff check failed"
    wrong = {key: difference for key, difference in log.differences.items() if not log.outcomes[key]}
    assert wrong == {
        "step_500_cosine_lr": 9.35605818719964e-06,
        "step_700_cosine_lr": 1.3681476625617212e-05,
        "step_900_cosine_lr": 1.8924391285779562e-05,
    }
    assert "cosine: over all 1024 steps at most 3.000e-05 (step 1023), at most 100.00% of the rate" in printed


def test_backward_check_passes_when_both_sides_really_run(fnet):
    printed = fnet.check("check_step4.py")

    log = fnet.log("bp_align_diff.log")
    assert list(log.differences) == LOSSES
    assert log.verdict == "diff check passed"
    assert "torch loss_9" in printed
    assert "paddle loss_9" in printed
    fnet.run("reprod", "compare", "bp_align_torch.npy", "bp_align_paddle.npy")


@pytest.mark.whole
def test_each_side_loads_its_own_framework_only(fnet):
    fnet.torch("train_torch.py", "--iterations", "1")
    fnet.paddle("train_paddle.py", "--iterations", "1")


@pytest.mark.whole
def test_published_backward_check_is_ten_zeros_when_torch_meets_itself(fnet):
    printed = fnet.check("check_step4.py", "--as-published")

    log = fnet.log("bp_align_diff.log")
    assert log.verdict == "diff check passed"
    assert log.differences == dict.fromkeys(LOSSES, 0.0)
    assert "paddle loss" not in printed
    noted = fnet.run("reprod", "compare", "bp_align_torch.npy", "bp_align_paddle.npy", exit_code=4)
    assert noted.startswith("NOT PROVEN")


@pytest.mark.whole
def test_old_adamw_fails_from_the_first_update_when_paddle_really_runs(fnet):
    fnet.check("check_step4.py", "--legacy-adamw", exit_code=1)

    log = fnet.log("bp_align_diff.log")
    assert log.outcomes["loss_0"]
    assert not log.outcomes["loss_1"]
    assert log.differences["loss_1"] > 1e-5
