"""A loss that makes log-probabilities of log-probabilities gives the output another gradient, and nothing else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import torch
from torch.nn import functional as F

from reprod_log import Alignment, align_models


class Reference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.fc(x), -1)


class Port(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc = paddle.nn.Linear(5, 4)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return paddle.nn.functional.log_softmax(self.fc(x), -1)


def _aligned(loss: Callable[[Any, Any], Any]) -> Alignment:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    data, labels = (rng.normal(size=(6, 5)).astype("float32"),), rng.integers(0, 4, 6)
    return align_models(Reference(), Port(), data, targets=labels, loss=(F.nll_loss, loss))


def test_cross_entropy_of_log_probabilities_is_aligned_with_their_likelihood() -> None:
    alignment = _aligned(paddle.nn.functional.cross_entropy)
    assert alignment.passed
    (output,) = [one for one in alignment.verdict.judgements if one.key == "step0/backward/#0:output"]
    assert "formulated differently" in str(output.reason)


def test_gradient_that_reaches_the_weights_otherwise_is_found() -> None:
    def halved(output: Any, labels: Any) -> Any:
        loss = paddle.nn.functional.nll_loss(output, labels)
        return loss / 2 + loss.detach() / 2

    first = _aligned(halved).first_divergence
    assert first is not None
    assert first.key == "step0/backward/#0:output"
