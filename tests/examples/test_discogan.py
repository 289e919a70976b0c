"""examples/discogan: five iterations, with the right weights and as published."""

from __future__ import annotations

import pytest

LOSSES = [f"{kind}_loss_{index}" for kind in ("gen", "dis") for index in range(5)]


@pytest.fixture(scope="module")
def discogan(copy_example):
    return copy_example("discogan")


def test_backward_check_passes_when_every_network_has_its_own_weights(discogan):
    discogan.run("python", "bp_DG.py", cwd="DG_paddle")
    discogan.run("python", "bp_DG.py", cwd="DG_torch")
    discogan.check("check_step3.py")

    log = discogan.log("bp_align_diff.log")
    assert list(log.differences) == LOSSES
    assert log.verdict == "diff check passed"


@pytest.mark.whole
def test_published_drift_comes_back_when_the_generators_share_a_dict(discogan):
    discogan.paddle("DG_paddle/bp_DG.py", "--as-published")
    discogan.torch("DG_torch/bp_DG.py", "--as-published")
    discogan.check("check_step3.py", exit_code=1)

    log = discogan.log("bp_align_diff.log")
    assert log.verdict == "diff check failed"
    # Wrong weights, and yet small: the first difference is below the threshold and the drift looks like rounding.
    assert log.outcomes["gen_loss_0"]
    assert not log.outcomes["gen_loss_3"]
    assert 1e-6 < max(log.differences.values()) < 1e-4
