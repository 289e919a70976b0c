"""examples/alexnet: the seed's commands, the five steps, a ReLU at its kink, an LR check that never steps."""

from __future__ import annotations

import numpy as np
import pytest

LOSSES = [f"loss_{index}" for index in range(5)]


@pytest.fixture(scope="module")
def alexnet(copy_example):
    return copy_example("alexnet")


def test_backward_check_passes_by_the_commands_of_the_seed(alexnet):
    alexnet.run("sh", "train.sh", cwd="AlexNet_paddle")
    alexnet.run("sh", "train.sh", cwd="AlexNet_torch")
    printed = alexnet.run("python", "check_step4.py")

    log = alexnet.log("bp_align_diff.log")
    assert list(log.differences) == LOSSES
    assert log.verdict == "diff check passed"
    assert max(log.differences.values()) <= 1e-6
    assert printed == (alexnet.folder / "bp_align_diff.log").read_text()


def test_script_fails_when_it_imports_a_forbidden_framework(alexnet):
    """The other tests lean on this: a script that imports what it must not ends with an error."""
    printed = alexnet.check("AlexNet_torch/train.py", exit_code=1)

    assert "torch must not be imported here" in printed


@pytest.mark.parametrize(
    ("script", "step", "log", "key"),
    [
        pytest.param("forward", 1, "forward_diff.log", "logits", marks=pytest.mark.whole),
        pytest.param("metric", 2, "metric_diff.log", "top1", marks=pytest.mark.whole),
        pytest.param("loss", 3, "loss_diff.log", "loss", marks=pytest.mark.whole),
        pytest.param("train_align", 5, "train_align_diff.log", "top1", marks=pytest.mark.whole),
    ],
)
def test_step_passes_when_weights_and_data_are_equal(alexnet, script, step, log, key):
    alexnet.torch(f"AlexNet_torch/{script}.py")
    alexnet.paddle(f"AlexNet_paddle/{script}.py")
    alexnet.check(f"check_step{step}.py")

    assert alexnet.log(log).outcomes == {key: True}
    if script == "metric":
        assert load(alexnet, "AlexNet_torch/metric_torch.npy")["top1"] == 0.5


def test_learning_rates_pass_when_the_schedulers_are_stepped(alexnet):
    alexnet.check("test_lr.py")

    assert alexnet.log("lr_diff.log").verdict == "diff check passed"
    rates = load(alexnet, "AlexNet_paddle/lr_paddle.npy")["lr"]
    assert rates.shape == (90,)
    np.testing.assert_allclose(rates[[0, 29, 30, 59, 60, 89]], [0.1, 0.1, 0.01, 0.01, 0.001, 0.001], rtol=1e-12)


@pytest.mark.whole
def test_learning_rates_pass_for_the_wrong_reason_when_never_stepped(alexnet):
    alexnet.check("test_lr.py", "--never-step")

    assert alexnet.log("lr_diff.log").verdict == "diff check passed"
    assert set(load(alexnet, "AlexNet_torch/lr_torch.npy")["lr"]) == {0.1}
    noted = alexnet.run("reprod", "compare", "AlexNet_torch/lr_torch.npy", "AlexNet_paddle/lr_paddle.npy", exit_code=4)
    assert noted.startswith("NOT PROVEN")


@pytest.mark.whole
def test_published_lr_check_fails_when_shapes_are_not_broadcast(alexnet):
    printed = alexnet.check("test_lr.py", "--as-published", exit_code=1)

    assert "shapes differ: [90, 1] and [90]" in printed
    assert load(alexnet, "AlexNet_torch/lr_torch.npy")["lr"].shape == (90, 1)


@pytest.mark.whole
def test_failure_with_he_weights_is_a_relu_at_its_kink_and_goes_away_in_float64(alexnet):
    alexnet.torch("AlexNet_torch/train.py", "--init", "he08", "--record-relu")
    alexnet.paddle("AlexNet_paddle/train.py", "--init", "he08", "--record-relu")
    # On another processor the kernels round otherwise: perhaps no element crosses zero, and then the check passes.
    flips = int(alexnet.check("check_kink.py").splitlines()[-1].split()[0])
    alexnet.check("check_step4.py", exit_code=1 if flips else 0)
    log = alexnet.log("bp_align_diff.log")
    assert log.differences["loss_0"] <= 1e-6
    if flips:
        assert max(log.differences.values()) > 1e-5

    alexnet.torch("AlexNet_torch/train.py", "--init", "he08", "--float64")
    alexnet.paddle("AlexNet_paddle/train.py", "--init", "he08", "--float64")
    alexnet.check("check_step4.py")
    assert max(alexnet.log("bp_align_diff.log").differences.values()) < 1e-6


def load(example, path):
    return np.load(example.folder / path, allow_pickle=True).item()
