"""With live models: operators at fault, mended re-runs, and layers that users derive from a framework's."""

from typing import Any

import numpy as np
import paddle
import torch

from reprod_log import Alignment
from reprod_log.live.align_models import align_models

DATA = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


def causes(alignment: Alignment) -> dict[str, str]:
    return {one.rule: one.cause for one in alignment.findings if one.kind == "cause"}


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.softmax(self.first(x), -1) * 3.0)


class PaddleNet(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = paddle.nn.Linear(6, 6), paddle.nn.Linear(6, 2)

    def between(self, x: Any) -> Any:
        return paddle.nn.functional.softmax(x, axis=-1) * 3.0

    def forward(self, x: Any) -> Any:
        return self.last(self.between(self.first(x)))


class OtherAxis(PaddleNet):
    def between(self, x: Any) -> Any:
        return paddle.nn.functional.softmax(x, axis=0) * 3.0


class ByHand(PaddleNet):
    def between(self, x: Any) -> Any:
        powers = paddle.exp(x - x.max(axis=-1, keepdim=True))
        return 3.0 * powers / powers.sum(axis=-1, keepdim=True)


def test_operator_at_fault_is_named_with_its_line() -> None:
    found = causes(align_models(TorchNet(), OtherAxis(), (DATA,)))["operator"]
    assert "softmax in the reference" in found
    assert "softmax in the candidate" in found
    assert "axis=0" in found


def test_operator_whose_backward_is_at_fault_is_named_with_its_line() -> None:
    class Straight(paddle.autograd.PyLayer):
        """Rounds towards zero gradient: the output is right, the slope is not."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return paddle.tanh(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    class OtherSlope(PaddleNet):
        def between(self, x: Any) -> Any:
            return Straight.apply(paddle.sin(x)) * 3.0

    class Right(TorchNet):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.tanh(torch.sin(self.first(x))) * 3.0)

    alignment = align_models(Right(), OtherSlope(), (DATA,))
    found = causes(alignment)["operator"]
    assert "whose backward pass differs is tanh in the reference" in found
    assert "torch.tanh(torch.sin(self.first(x)))" in found


def test_other_formulation_with_the_same_gradients_has_no_operator_at_fault() -> None:
    class Detached(ByHand):
        def between(self, x: Any) -> Any:
            powers = paddle.exp(x - x.max(axis=-1, keepdim=True).detach())
            return 3.0 * powers / powers.sum(axis=-1, keepdim=True)

    assert align_models(TorchNet(), Detached(), (DATA,)).passed


def test_another_formulation_of_the_same_thing_passes_without_a_cause() -> None:
    alignment = align_models(TorchNet(), ByHand(), (DATA,))
    assert alignment.passed
    assert causes(alignment) == {}


def test_fault_is_forgiven_nowhere_when_the_formulation_differs_too() -> None:
    class Scaled(ByHand):
        def between(self, x: Any) -> Any:
            return super().between(x) / 3.0

    found = causes(align_models(TorchNet(), Scaled(), (DATA,)))
    assert "0.333333 times" in found["between_layers"]


def test_setting_is_proven_by_the_mended_layer() -> None:
    ours = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6))
    theirs = paddle.nn.Sequential(paddle.nn.Linear(6, 6), paddle.nn.LayerNorm(6, epsilon=1e-3))
    alignment = align_models(ours, theirs, (DATA,))
    (finding,) = [one for one in alignment.findings if one.kind == "cause"]
    assert (finding.rule, finding.confidence) == ("layer_setting", "proven")
    assert "eps of 1 differs" in finding.cause
    # The models themselves are as they were.
    assert theirs[1]._epsilon == 1e-3


def test_layer_derived_from_a_frameworks_layer_keeps_its_layout() -> None:
    class Mine(paddle.nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x)

    ours = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 2))
    theirs = paddle.nn.Sequential(Mine(6, 6), Mine(6, 2))
    assert align_models(ours, theirs, (DATA,)).passed


def test_dropout_that_does_not_scale_up_is_seen_and_named() -> None:
    ours = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.5))
    theirs = paddle.nn.Sequential(paddle.nn.Linear(6, 6), paddle.nn.Dropout(0.5, mode="downscale_in_infer"))
    found = causes(align_models(ours, theirs, (DATA,)))
    assert "mode of 1 differs" in found["layer_setting"]


def test_saturated_softmax_of_paddle_is_explained() -> None:
    ours, theirs = torch.nn.Linear(6, 3), paddle.nn.Linear(6, 3)
    torch.nn.init.constant_(ours.weight, 0.0)
    with torch.no_grad():
        ours.bias.copy_(torch.tensor([0.0, 100.0, 0.0]))
    alignment = align_models(
        ours,
        theirs,
        (DATA,),
        targets=np.zeros(5, dtype=np.int64),
        loss=(torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy),
    )
    assert "stop at 64" in causes(alignment)["saturation"]
