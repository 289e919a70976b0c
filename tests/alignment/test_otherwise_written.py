"""Wrong ports in another formulation, where values alone can pair the weights."""

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Status, align_models


class Packed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.both = torch.nn.Linear(6, 16)
        self.norm = torch.nn.LayerNorm(8, eps=1e-3)
        self.out = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, two = self.both(x).chunk(2, -1)
        return self.out(self.norm(torch.tanh(one) * two))


class Apart(paddle.nn.Layer):
    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.one, self.two = paddle.nn.Linear(6, 8), paddle.nn.Linear(6, 8)
        self.ln = paddle.nn.LayerNorm(8, epsilon=epsilon)
        self.head = paddle.nn.Linear(8, 4)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.ln(paddle.tanh(self.one(x)) * self.two(x)))


def test_a_setting_is_a_cause_behind_weights_that_only_values_pair() -> None:
    torch.manual_seed(1)
    x = np.random.default_rng(0).normal(size=(5, 6)).astype("float32")
    right, wrong = (
        align_models(Packed(), Apart(epsilon), x, loss=lambda out: (out * out).mean()) for epsilon in (1e-3, 1e-5)
    )
    assert right.status is Status.PASS
    assert wrong.status is Status.FAIL
    causes = [one for one in wrong.findings if one.kind == "cause"]
    assert [(one.rule, one.confidence) for one in causes] == [("layer_setting", "proven")]


class Padding(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 1)
        self.second = torch.nn.Conv2d(4, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.second(torch.nn.functional.leaky_relu(self.first(x), 0.2)))


class Padded(paddle.nn.Layer):
    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope
        self.point, self.conv = paddle.nn.Conv2D(3, 4, 1), paddle.nn.Conv2D(4, 4, 3)
        self.bn = paddle.nn.BatchNorm2D(4)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        active = paddle.nn.functional.leaky_relu(self.point(x), self.slope)
        return self.bn(self.conv(paddle.nn.functional.pad(active, [1, 1, 1, 1])))


@pytest.mark.usefixtures("weights_by_name")
@pytest.mark.parametrize("slope", [0.2, 0.01])
def test_padding_outside_the_layer_is_never_a_cause(slope: float) -> None:
    torch.manual_seed(1)
    x = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype("float32")
    found = align_models(Padding(), Padded(slope), x, loss=lambda out: (out * out * out).mean())
    assert found.status is Status.FAIL
    told = [one for one in found.findings if one.kind in ("cause", "hint")]
    assert not [one for one in told if "padding" in str(one.cause)]
    if slope == 0.2:
        # What is left is the variance that paddle divides by N and torch by N - 1, known after one step.
        assert [one.cause.id for one in told] == ["cause.statistics.divisor"]
        assert all(row.key.phase == "buffer" for row in found.verdict.judgements if not row.status.passed)
    else:
        assert "leaky_relu" in str(told[0].cause)
