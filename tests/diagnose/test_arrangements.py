"""The same numbers in another order: which order, and which operator made it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log.alignment.models import align_models
from reprod_log.pairing.layouts import arrangement

ARRAY = np.random.default_rng(0).normal(size=(3, 4, 4))
PADDED = np.pad(ARRAY, ((0, 0), (0, 0), (2, 0)))


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (ARRAY, ARRAY[:, ::-1], "reversed along axis 1"),
        (ARRAY, ARRAY.swapaxes(1, 2), "transposed, axes 0, 2, 1"),
        (PADDED, np.pad(ARRAY, ((0, 0), (0, 0), (0, 2))), "moved left by 2 along axis 2 (padding"),
        (PADDED, np.pad(ARRAY, ((0, 0), (0, 0), (1, 1))), "moved left by 1 along axis 2 (padding"),
        (ARRAY, np.concatenate([ARRAY[:, 1:], ARRAY[:, :1]], 1), "rotated by 3 along axis 1"),
        (ARRAY, ARRAY[[0, 2, 1]], "permuted along axis 0"),
        (ARRAY[:, :2], ARRAY[:, :2].transpose(0, 2, 1).reshape(3, 2, 4), "axes 0, 2, 1 read as if"),
    ],
)
def test_order_is_named(ours: np.ndarray, theirs: np.ndarray, words: str) -> None:
    found = arrangement(ours, theirs)
    assert found is not None
    assert words in str(found)


@pytest.mark.parametrize("theirs", [ARRAY, ARRAY + 1, ARRAY[:2]])
def test_no_order_is_named_for_equal_or_other_numbers(theirs: np.ndarray) -> None:
    assert arrangement(ARRAY, theirs) is None


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Conv1d(2, 3, 1), torch.nn.Conv1d(3, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        return self.last(torch.nn.functional.pad(y, (2, 0)))


class PaddleNet(paddle.nn.Layer):
    def __init__(self, between: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.last = paddle.nn.Conv1D(2, 3, 1), paddle.nn.Conv1D(3, 2, 3)
        self.between = between

    def forward(self, x: Any) -> Any:
        return self.last(self.between(paddle.nn.functional.relu(self.first(x))))


def padded(sides: list[int]) -> Callable[[Any], Any]:
    return lambda y: paddle.nn.functional.pad(y, sides, data_format="NCL")


def test_operator_that_pads_on_the_other_side_is_named_and_not_the_one_behind_it() -> None:
    data = (np.random.default_rng(0).normal(size=(2, 2, 6)).astype(np.float32),)
    assert align_models(TorchNet(), PaddleNet(padded([2, 0])), data).passed
    (found,) = align_models(TorchNet(), PaddleNet(padded([0, 2])), data).findings
    assert "moved left by 2 along axis 2 (padding on the other side?)" in str(found.cause)
    assert any("pad in the reference" in str(one) for one in found.evidence)


class TorchMixer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.first(x), -1)
        return self.last(torch.tanh(x @ weights.transpose(1, 2)))


class PaddleMixer(paddle.nn.Layer):
    def __init__(self, squash: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.last, self.squash = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 2), squash

    def forward(self, x: Any) -> Any:
        weights = paddle.nn.functional.softmax(self.first(x), -1)
        return self.last(self.squash(paddle.matmul(x, weights, transpose_y=True)))


def test_matrix_that_only_one_side_transposes_is_not_accused_of_a_later_mistake() -> None:
    data = (np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32),)
    assert align_models(TorchMixer(), PaddleMixer(paddle.tanh), data).passed
    findings = align_models(TorchMixer(), PaddleMixer(paddle.nn.functional.sigmoid), data).findings
    (operator,) = [one for one in findings if one.rule == "operator"]
    assert "is tanh in the reference" in str(operator.cause)
    assert "sigmoid in the candidate" in str(operator.cause)
