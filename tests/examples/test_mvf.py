"""examples/mvf: the four steps by the seed's commands, and a loss too flat to see a missing weight decay."""

from __future__ import annotations

import pytest

from reprod_log import load


@pytest.fixture(scope="module")
def mvf(copy_example):
    return copy_example("mvf")


@pytest.mark.whole
def test_forward_passes_by_the_commands_of_the_seed(mvf):
    mvf.run("python", "alignment/step1/create_fakedata.py")
    mvf.paddle("alignment/step1/paddle_forward.py")
    mvf.torch("alignment/step1/torch_forward.py")
    mvf.check("alignment/step1/check_step1.py")

    log = mvf.log("alignment/step1/forward_diff.log")
    assert log.outcomes == {"logits": True}


@pytest.mark.whole
def test_metrics_pass_on_the_mini_data_set(mvf):
    mvf.run("bash", "test_tipc/prepare.sh", "test_tipc/configs/mvf/train_infer_python.txt", "lite_train_lite_infer")
    mvf.paddle("alignment/step2/paddle_val.py", "--dataset_root", "test_tipc/data/mini_ucf")
    printed = mvf.torch("alignment/step2/torch_val.py", "--dataset_root", "test_tipc/data/mini_ucf")
    mvf.check("alignment/step2/check_step2.py")

    log = mvf.log("alignment/step2/metric_diff.log")
    assert log.differences == {"top1_acc": 0.0, "mean_class_accuracy": 0.0}
    assert "top1_acc: 0.2500" in printed
    assert "mean_class_accuracy: 0.1000" in printed


@pytest.mark.whole
def test_loss_passes_by_the_commands_of_the_seed(mvf):
    mvf.paddle("alignment/step3/paddle_loss.py")
    mvf.torch("alignment/step3/torch_loss.py")
    mvf.check("alignment/step3/check_step3.py")

    assert mvf.log("alignment/step3/loss_diff.log").outcomes == {"loss": True}


def test_backward_passes_and_sees_a_missing_weight_decay(mvf):
    mvf.paddle("alignment/step4/paddle_train.py")
    mvf.torch("alignment/step4/torch_train.py")
    sides = [load(mvf.folder / f"alignment/step4/bp_align_{side}.npy") for side in ("torch", "paddle")]
    names = [f"loss_{index}" for index in range(5)]
    apart = [abs(float(sides[0][name].array().mean() - sides[1][name].array().mean())) for name in names]
    # How far rounding alone goes in five steps depends on the processor's kernels; the script's limit is 1e-6.
    assert max(apart) < 1e-5
    mvf.check("alignment/step4/check_step4.py", exit_code=int(max(apart) > 1e-6))
    assert list(mvf.log("alignment/step4/bp_align_diff.log").differences) == names

    mvf.paddle("alignment/step4/paddle_train.py", "--no-weight-decay")
    mvf.check("alignment/step4/check_step4.py", exit_code=1)
    log = mvf.log("alignment/step4/bp_align_diff.log")
    assert log.outcomes["loss_0"]
    assert log.differences["loss_4"] > 1e-4


@pytest.mark.whole
def test_published_backward_passes_though_the_weight_decay_is_missing(mvf):
    mvf.torch("alignment/step4/torch_train.py", "--as-published")
    mvf.paddle("alignment/step4/paddle_train.py", "--as-published", "--no-weight-decay")
    mvf.check("alignment/step4/check_step4.py")

    assert mvf.log("alignment/step4/bp_align_diff.log").verdict == "diff check passed"
    noted = mvf.run(
        "reprod", "compare", *(f"alignment/step4/bp_align_{side}.npy" for side in ("torch", "paddle")), exit_code=4
    )
    assert noted.startswith("NOT PROVEN")
