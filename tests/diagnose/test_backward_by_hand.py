"""Backward passes that differ: written by hand, cut, or lost; the place and the line are named."""

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Alignment
from reprod_log.alignment.models import align_models
from reprod_log.messages import words

DATA = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


def causes(alignment: Alignment) -> dict[str, str]:
    return {one.rule: str(one.cause) for one in alignment.findings if one.kind == "cause"}


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 2)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.sin(x)) * 3.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.between(self.first(x)))


class PaddleNet(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = paddle.nn.Linear(6, 6), paddle.nn.Linear(6, 2)

    def between(self, x: Any) -> Any:
        return paddle.tanh(paddle.sin(x)) * 3.0

    def forward(self, x: Any) -> Any:
        return self.last(self.between(self.first(x)))


class PassedOn(paddle.autograd.PyLayer):
    """The gradient goes through as it came: what is given back is known on the other side."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return paddle.tanh(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return grad * (1 - y * y) / 2


class Right(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = paddle.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (y,) = ctx.saved_tensor()
        return grad * (1 - y * y)


def with_function(function: Any) -> type[PaddleNet]:
    class Net(PaddleNet):
        def between(self, x: Any) -> Any:
            return function.apply(paddle.sin(x)) * 3.0

    return Net


def test_backward_written_by_hand_is_named_with_its_class_and_line() -> None:
    alignment = align_models(TorchNet(), with_function(PassedOn)(), (DATA,))
    first = alignment.findings[0]
    assert (first.rule, first.confidence) == ("wrong_backward", "proven")
    assert "PassedOn, test_backward_by_hand.py:" in str(first.cause)
    assert "the candidate's is wrong" in str(first.cause)
    assert "cut_graph" not in causes(alignment)


def test_backward_written_by_hand_in_the_reference_is_named_as_the_wrong_one() -> None:
    class Ours(TorchNet):
        def between(self, x: torch.Tensor) -> torch.Tensor:
            return Halved.apply(torch.sin(x)) * 3.0

    found = causes(align_models(Ours(), PaddleNet(), (DATA,)))["wrong_backward"]
    assert "Halved, " in found
    assert "the reference's is wrong" in found


def test_right_backward_written_by_hand_is_not_accused_of_another_mistake() -> None:
    class Net(with_function(Right)):  # type: ignore[misc]  # a class made above
        def forward(self, x: Any) -> Any:
            return self.last(paddle.abs(self.between(self.first(x))))

    assert align_models(TorchNet(), with_function(Right)(), (DATA,)).passed
    found = causes(align_models(TorchNet(), Net(), (DATA,)))
    assert "wrong_backward" not in found
    assert "abs" in found["operator"]


def test_backward_written_by_hand_beside_a_residual_is_named_and_not_the_addition() -> None:
    class Ours(TorchNet):
        def between(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tanh(torch.sin(x))

    class Theirs(PaddleNet):
        def between(self, x: Any) -> Any:
            return x + PassedOn.apply(paddle.sin(x))

    assert list(causes(align_models(Ours(), Theirs(), (DATA,)))) == ["wrong_backward"]


def test_listening_to_functions_is_undone() -> None:
    before = vars(torch.autograd.Function)["apply"]
    align_models(TorchNet(), with_function(PassedOn)(), (DATA,))
    assert vars(torch.autograd.Function)["apply"] is before
    assert "apply" not in vars(paddle.autograd.PyLayer)


def test_cut_branch_is_named_with_its_line() -> None:
    class Ours(TorchNet):
        def between(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x) + x

    class Theirs(PaddleNet):
        def between(self, x: Any) -> Any:
            return paddle.tanh(x) + x.detach()

    found = causes(align_models(Ours(), Theirs(), (DATA,)))
    assert list(found) == ["cut_graph"]
    assert "paddle.tanh(x) + x.detach()" in found["cut_graph"]


def test_lost_gradient_is_the_first_divergence() -> None:
    class Theirs(PaddleNet):
        def between(self, x: Any) -> Any:
            return super().between(x).detach()

    first = align_models(
        TorchNet(), Theirs(), (DATA,), loss=(lambda out: (out * out).sum(), lambda out: (out * out).sum())
    )
    assert first.first_divergence is not None
    assert first.first_divergence.key == "step0/backward/first#0:output"
    assert first.verdict.last_agreement is not None
    assert first.verdict.last_agreement.key == "step0/loss/loss"


@pytest.mark.usefixtures("weights_by_name")
def test_operator_behind_a_norm_with_an_accepted_buffer_is_named() -> None:
    class Ours(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.norm = torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x + self.norm(self.fc(x)))

    class Theirs(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.norm = paddle.nn.Linear(6, 6), paddle.nn.BatchNorm1D(6)

        def forward(self, x: Any) -> Any:
            return x + paddle.nn.functional.relu(self.norm(self.fc(x)))

    ours, theirs = (
        torch.nn.Sequential(Ours(), torch.nn.Linear(6, 2)),
        paddle.nn.Sequential(Theirs(), paddle.nn.Linear(6, 2)),
    )
    for accept in (["*running_var*"], []):
        found = causes(align_models(ours, theirs, (DATA,), accept=accept))["operator"]
        assert "inside 0 the first operator that differs is add in the reference" in found
        assert "relu in the candidate" in found


def test_one_mistake_in_many_layers_is_one_finding_that_names_them() -> None:
    ours = torch.nn.Sequential(*(torch.nn.LayerNorm(6) for _ in range(3)))
    theirs = paddle.nn.Sequential(*(paddle.nn.LayerNorm(6, epsilon=1e-3) for _ in range(3)))
    found = [one for one in align_models(ours, theirs, (DATA,)).findings if one.kind == "cause"]
    assert [one.confidence for one in found] == ["proven"]
    assert "eps of 0, 1, 2 differs" in str(found[0].cause)
    assert "for 0, 1, 2" in words()(found[0].advice)
    assert [fix.layer for fix in found[0].fixes] == ["0", "1", "2"]


def test_layer_that_another_rule_explains_has_no_operator_beside_it() -> None:
    ours = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6)))
    theirs = paddle.nn.Sequential(paddle.nn.Sequential(paddle.nn.Linear(6, 6), paddle.nn.BatchNorm1D(6)))
    theirs[0][1].eval()
    found = causes(align_models(ours, theirs, (DATA,), steps=2, accept=["*running_var*"]))
    assert list(found) == ["mode"]


class TwiceCalled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.other = torch.nn.Conv1d(3, 2, 1), torch.nn.Conv1d(3, 2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat([self.head(x), self.head(x[..., :2])], -1), self.other(x)


class TwiceCalledPort(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.other = paddle.nn.Conv1D(3, 2, 1), paddle.nn.Conv1D(3, 2, 1)

    def forward(self, x: Any) -> Any:
        return paddle.concat([self.head(x), self.head(x[..., :2])], -1), self.other(x)


def test_model_that_is_right_alone_is_not_accused_of_what_the_loss_cuts() -> None:
    def focused(outputs: Any, weight: Any) -> Any:
        return (weight * outputs[0] * outputs[0]).mean() + (outputs[1] * outputs[1]).mean()

    data = (np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32),)
    alignment = align_models(
        TwiceCalled(),
        TwiceCalledPort(),
        data,
        loss=(
            lambda outputs: focused(outputs, torch.sigmoid(outputs[0])),
            lambda outputs: focused(outputs, paddle.nn.functional.sigmoid(outputs[0]).detach()),
        ),
    )
    assert alignment.first_divergence is not None
    assert alignment.first_divergence.key == "step0/backward/#0:output.0"
    assert [one.rule for one in alignment.findings if one.kind == "cause"] == ["cut_graph"]
