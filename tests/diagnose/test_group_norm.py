"""A wrong backward pass is proven by finite differences: paddle's group norm without weights, and one of our own."""

import importlib.util
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch

from reprod_log.alignment.models import align_models

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "group_norm" / "find.py"


def test_group_norm_without_weights_is_found_in_the_candidate() -> None:
    if not paddle.__version__.startswith("3.3.1"):
        pytest.skip("known of paddle 3.3.1; others may have fixed it")
    spec = importlib.util.spec_from_file_location("group_norm_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    torch.manual_seed(0)
    images = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32)
    alignment = align_models(
        example.TorchNet(),
        example.PaddleNet(),
        (images,),
        targets=np.array([1, 3]),
        loss=(torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy),
    )
    assert alignment.first_divergence is not None
    assert alignment.first_divergence.key == "isolated@step0/backward/norm#0:input.0"
    (cause,) = [one for one in alignment.findings if one.kind == "cause"]
    assert cause.rule == "wrong_backward"
    assert cause.confidence == "proven"
    assert "the candidate's is wrong" in str(cause.cause)


class Doubled(torch.autograd.Function):
    """A square whose gradient is wrong by a factor of two."""

    @staticmethod
    def forward(context: object, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)  # type: ignore[attr-defined]
        return x * x

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = context.saved_tensors  # type: ignore[attr-defined]
        return 4 * x * gradient


class Square(torch.nn.Module):
    def __init__(self, wrong: bool) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(x) if self.wrong else x * x


@pytest.mark.parametrize("wrong", ["reference", "candidate"])
def test_side_with_the_wrong_gradient_is_named_when_either_may_be(wrong: str) -> None:
    def model(square: torch.nn.Module) -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 4), square, torch.nn.Linear(4, 1))

    sides = {side: model(Square(side == wrong)) for side in ("reference", "candidate")}
    alignment = align_models(
        sides["reference"],
        sides["candidate"],
        (np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32),),
        loss=lambda outputs: outputs.mean(),
    )
    causes = [one for one in alignment.findings if one.rule == "wrong_backward"]
    assert [one.confidence for one in causes] == ["proven"]
    assert f"the {wrong}'s is wrong" in str(causes[0].cause)
