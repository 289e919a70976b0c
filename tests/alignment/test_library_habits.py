"""What libraries of models do that small models do not: more results, conversions inside, notes on parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Status, align_models


def inputs(seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(4, 6, 16)).astype(np.float32)


class TorchBlock(torch.nn.Module):
    """Returns what it keeps for later calls beside its output, like a language model."""

    def __init__(self, *, unlike: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.key, self.head = torch.nn.Linear(16, 8), torch.nn.Linear(8, 5)
        self.unlike = unlike

    def forward(self, x: Any) -> Any:
        kept = torch.tanh(self.key(x)) * 2
        return {"logits": self.head(kept), "cache": kept.exp() if self.unlike else kept}


class PaddleBlock(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.key, self.head = paddle.nn.Linear(16, 8), paddle.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.head(paddle.tanh(self.key(x)) * 2)


def test_a_result_that_the_candidate_computes_and_does_not_return_is_no_difference() -> None:
    found = align_models(TorchBlock(), PaddleBlock(), inputs())
    assert found.verdict.passed
    assert not [one for one in found.findings if one.kind in ("cause", "hint")]


def test_a_result_that_the_candidate_does_not_compute_is_unmatched() -> None:
    found = align_models(TorchBlock(unlike=True), PaddleBlock(), inputs())
    assert found.verdict.counts[Status.UNMATCHED] == 1


def test_a_result_that_only_the_candidate_returns_is_no_difference() -> None:
    assert align_models(PaddleBlock(), TorchBlock(), inputs()).verdict.passed


class TorchNorm(torch.nn.Module):
    """A norm that computes in float32 whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 16))

    def forward(self, x: Any) -> Any:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class PaddleNorm(paddle.nn.Layer):
    def __init__(self, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight = self.create_parameter([16])
        self.epsilon = epsilon

    def forward(self, x: Any) -> Any:
        wide = x.astype("float32")
        size = (wide * wide).sum(-1, keepdim=True) / 16
        return (wide / paddle.sqrt(size + self.epsilon)).astype(x.dtype) * self.weight


def normed(epsilon: float = 1e-6) -> tuple[Any, Any]:
    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Linear(16, 16), TorchNorm(), torch.nn.Linear(16, 16), TorchNorm())
    candidate = paddle.nn.Sequential(
        paddle.nn.Linear(16, 16), PaddleNorm(epsilon), paddle.nn.Linear(16, 16), PaddleNorm(epsilon)
    )
    return reference, candidate


@pytest.mark.parametrize("seed", range(6))
def test_layers_that_compute_in_float32_by_themselves_are_rounded_alike(seed: int) -> None:
    verdict = align_models(*normed(), inputs(seed)).verdict
    assert set(verdict.counts) == {Status.PASS}


@pytest.mark.usefixtures("weights_by_name")
def test_an_epsilon_inside_a_layer_that_computes_in_float32_is_found() -> None:
    found = align_models(*normed(epsilon=1e-5), inputs()).verdict
    assert not found.passed


class Noted(paddle.nn.Layer):
    """Asks its parameter for what was noted on it when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([16, 5])
        self.weight.is_distributed = False

    def forward(self, x: Any) -> Any:
        return x + 1 if self.weight.is_distributed else x @ self.weight


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(16, 5))

    def forward(self, x: Any) -> Any:
        return x @ self.weight


def test_notes_on_parameters_are_there_in_every_run() -> None:
    assert align_models(Plain(), Noted(), inputs()).verdict.passed


class Masked(torch.nn.Module):
    """Hides the future by the lowest number of its type, which another type may not have."""

    def __init__(self, activation: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scores, self.last, self.head = Scores(), activation, torch.nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        mask = torch.triu(torch.full((6, 6), torch.finfo(x.dtype).min, dtype=x.dtype), 1)
        return self.last(self.head(self.scores(x, mask)))


class Scores(torch.nn.Module):
    def forward(self, x: Any, mask: Any) -> Any:
        return torch.softmax(x @ x.transpose(1, 2) + mask, -1) @ x


def test_the_lowest_number_of_a_type_is_no_infinity_in_another() -> None:
    found = align_models(Masked(torch.nn.GELU()), Masked(torch.nn.GELU(approximate="tanh")), inputs())
    assert not found.verdict.passed
    assert "not_finite" not in [one.rule for one in found.findings]
