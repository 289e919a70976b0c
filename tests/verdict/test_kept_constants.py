"""A momentum that is kept in float32 is no defect of a port, and hides none."""

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from torch.nn import functional as F

from reprod_log import Alignment, align_models


def _aligned(share: float, momentum: float) -> Alignment:
    torch.manual_seed(0)
    ours = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4, momentum=share))
    theirs = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4, momentum=momentum))
    x = np.random.default_rng(0).normal(size=(3, 16, 3)).astype("float32")
    # The biased variance is paddle's own and known; the running mean is what is looked at here.
    return align_models(ours, theirs, [(one,) for one in x], accept="*running_var*")


@pytest.mark.parametrize("share", [0.01, 0.001])
def test_running_mean_passes_with_any_momentum(share: float) -> None:
    assert _aligned(share, 1 - share).passed


def test_momentum_that_really_differs_is_found() -> None:
    alignment = _aligned(0.001, 1 - 0.001 * 1.0005)
    assert alignment.first_divergence is not None
    assert "running_mean" in alignment.first_divergence.key.path


_OPTIMIZERS = {
    "NAdam": (torch.optim.NAdam, paddle.optimizer.NAdam),
    "RAdam": (torch.optim.RAdam, paddle.optimizer.RAdam),
}


def _trained(name: str, beta2: float) -> Alignment:
    torch.manual_seed(0)
    ours, theirs = _OPTIMIZERS[name]
    rng = np.random.default_rng(0)
    make: tuple[Callable[[Any], Any], Callable[[Any], Any]] = (
        lambda model: ours(model.parameters(), 1e-3),  # type: ignore[attr-defined]
        lambda model: theirs(1e-3, beta2=beta2, parameters=model.parameters()),
    )
    return align_models(
        torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.LayerNorm(4)),
        paddle.nn.Sequential(paddle.nn.Linear(6, 4), paddle.nn.LayerNorm(4)),
        (rng.normal(size=(8, 6)).astype("float32"),),
        targets=rng.integers(0, 4, 8),
        loss=(F.cross_entropy, paddle.nn.functional.cross_entropy),
        optimizer=make,
        steps=7,
    )


@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_optimizer_with_its_betas_in_float32_passes(name: str) -> None:
    assert _trained(name, 0.999).passed


@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_beta_that_really_differs_is_found(name: str) -> None:
    alignment = _trained(name, 0.99895)
    assert alignment.first_divergence is not None
    assert alignment.first_divergence.key.role == "exp_avg_sq"
