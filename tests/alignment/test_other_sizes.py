"""A layer without weights that makes another size is the place, and not the code behind it."""

import numpy as np
import paddle
import torch

from reprod_log import Alignment, Status, align_models

_X = np.random.default_rng(0).normal(size=(2, 3, 10, 10)).astype("float32")


class Reference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Conv2d(4, 4, 3, padding=1)
        self.pool, self.head = torch.nn.MaxPool2d(3, 2, ceil_mode=True), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.pool(self.conv2(self.conv1(x))).mean((2, 3)))


class Port(paddle.nn.Layer):
    def __init__(self, *, ceil_mode: bool, padding: int = 1) -> None:
        super().__init__()
        self.first = paddle.nn.Conv2D(3, 4, 3, padding=1)
        self.second = paddle.nn.Conv2D(4, 4, 3, padding=padding, dilation=padding)
        self.pool, self.head = paddle.nn.MaxPool2D(3, 2, ceil_mode=ceil_mode), paddle.nn.Linear(4, 2)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.pool(self.second(self.first(x))).mean((2, 3)))


def _aligned(**wrong: int) -> Alignment:
    torch.manual_seed(0)
    return align_models(Reference(), Port(**wrong), (_X,))  # type: ignore[arg-type]


def test_pool_that_rounds_its_size_down_is_the_place_and_its_setting_the_cause() -> None:
    alignment = _aligned(ceil_mode=False)
    first, last = alignment.first_divergence, alignment.verdict.last_agreement
    assert first is not None
    assert last is not None
    assert (first.key, first.status) == ("isolated@step0/forward/pool#0:output", Status.INCOMPARABLE)
    assert last.key == "step0/forward/conv2#0:output"
    (cause,) = [finding for finding in alignment.findings if finding.kind == "cause"]
    assert cause.confidence == "proven"
    assert str(cause.cause).startswith("ceil_mode of pool differs")


def test_layer_that_is_wrong_before_another_size_comes_first() -> None:
    first = _aligned(ceil_mode=False, padding=2).first_divergence
    assert first is not None
    assert first.key == "isolated@step0/forward/conv2#0:output"


def test_right_port_of_the_same_layers_passes() -> None:
    assert _aligned(ceil_mode=True).passed
