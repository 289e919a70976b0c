"""A momentum that is kept in float32 is no defect of a port, and hides none."""

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Alignment, align_models


def _aligned(share: float, momentum: float) -> Alignment:
    torch.manual_seed(0)
    ours = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4, momentum=share))
    theirs = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4, momentum=momentum))
    x = np.random.default_rng(0).normal(size=(3, 16, 3)).astype("float32")
    # The biased variance is paddle's own and known; the running mean is what is looked at here.
    return align_models(ours, theirs, [(one,) for one in x], accept="*running_var*")


@pytest.mark.parametrize("share", [0.1, 0.01, 0.003, 0.001, 0.0003])
def test_running_mean_passes_with_any_momentum(share: float) -> None:
    assert _aligned(share, 1 - share).passed


@pytest.mark.parametrize("share", [0.01, 0.001])
def test_momentum_that_really_differs_is_found(share: float) -> None:
    alignment = _aligned(share, 1 - share * 1.0005)
    assert alignment.first_divergence is not None
    assert "running_mean" in alignment.first_divergence.key
