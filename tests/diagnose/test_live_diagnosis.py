"""With live models: operators at fault, mended re-runs, and layers that users derive from a framework's."""

import warnings
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


def test_other_formulation_with_the_same_gradients_has_no_operator_at_fault() -> None:
    class Detached(ByHand):
        def between(self, x: Any) -> Any:
            powers = paddle.exp(x - x.max(axis=-1, keepdim=True).detach())
            return 3.0 * powers / powers.sum(axis=-1, keepdim=True)

    assert align_models(TorchNet(), Detached(), (DATA,)).passed


@pytest.mark.parametrize("fill", [-np.inf, -1e9])
def test_operator_before_a_masked_softmax_is_not_hidden_by_the_fill(fill: float) -> None:
    keep = np.tril(np.ones((5, 5), bool))

    class Ours(TorchNet):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.first(x) @ x.T / 2.5
            return self.last(torch.softmax(scores.masked_fill(~torch.from_numpy(keep), fill), -1) @ x)

    class Theirs(PaddleNet):
        def forward(self, x: Any) -> Any:
            scores = paddle.matmul(self.first(x), x.T) / 6.0
            scores = paddle.where(paddle.to_tensor(keep), scores, paddle.full_like(scores, fill))
            return self.last(paddle.matmul(paddle.nn.functional.softmax(scores, axis=-1), x))

    found = causes(align_models(Ours(), Theirs(), (DATA,)))["operator"]
    assert "/ 2.5" in found
    assert "/ 6.0" in found


def test_dropout_with_a_shared_mask_is_not_taken_for_the_culprit() -> None:
    class Ours(TorchNet):
        def __init__(self) -> None:
            super().__init__()
            self.drop = torch.nn.Dropout(0.3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.drop(torch.tanh(self.first(x))) * 2.0 + 1.0)

    class Theirs(PaddleNet):
        def __init__(self) -> None:
            super().__init__()
            self.drop = paddle.nn.Dropout(0.3)

        def between(self, x: Any) -> Any:
            return self.drop(paddle.tanh(x)) * 2.0 + paddle.cos(x)

    (found,) = (str(one.cause) for one in align_models(Ours(), Theirs(), (DATA,)).findings if one.rule == "operator")
    assert "dropout in" not in found
    assert "cos" in found


def test_old_weight_norm_can_be_compared() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = torch.nn.Sequential(torch.nn.utils.weight_norm(torch.nn.Conv1d(4, 6, 3)))
    theirs = paddle.nn.Sequential(paddle.nn.utils.weight_norm(paddle.nn.Conv1D(4, 6, 3)))
    assert align_models(ours, theirs, (np.random.default_rng(0).normal(size=(2, 4, 9)).astype(np.float32),)).passed


def test_running_mean_of_zero_is_rounding() -> None:
    """Behind a normalisation and a convolution without bias every batch mean is zero in exact arithmetic."""
    ours = torch.nn.Sequential(
        torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 4, 1, bias=False), torch.nn.BatchNorm2d(4)
    ).train()
    theirs = paddle.nn.Sequential(
        paddle.nn.BatchNorm2D(4), paddle.nn.Conv2D(4, 4, 1, bias_attr=False), paddle.nn.BatchNorm2D(4)
    )
    data = np.random.default_rng(0).normal(size=(4, 4, 6, 6)).astype(np.float32)
    assert align_models(ours, theirs, (data,), accept=["*running_var*"]).passed


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
    assert "eps of 1 differs" in str(finding.cause)
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
    # In eval mode nothing is dropped: the other kind only scales.
    assert "mode" not in found


@pytest.mark.parametrize(("factor", "confidence"), [(1.0, "explained"), (1.1, "hint")])
def test_saturated_softmax_of_paddle_is_explained_where_it_predicts_the_loss(factor: float, confidence: str) -> None:
    ours, theirs = torch.nn.Linear(6, 3), paddle.nn.Linear(6, 3)
    torch.nn.init.constant_(ours.weight, 0.0)
    with torch.no_grad():
        ours.bias.copy_(torch.tensor([0.0, 100.0, 0.0]))
    alignment = align_models(
        ours,
        theirs,
        (DATA,),
        targets=np.zeros(5, dtype=np.int64),
        loss=(torch.nn.functional.cross_entropy, lambda z, y: factor * paddle.nn.functional.cross_entropy(z, y)),
    )
    (found,) = [one for one in alignment.findings if one.rule == "saturation"]
    assert "stop at 64" in str(found.cause)
    assert found.confidence == confidence


def test_setting_that_only_a_constructor_reads_is_proven_in_a_copy_of_the_reference() -> None:
    """Paddle's convolution works out its padding when it is made: another mode that is set later changes nothing."""
    theirs = paddle.nn.Sequential(paddle.nn.Conv2D(2, 3, 3, stride=2, padding=1, padding_mode="replicate"))
    data = np.random.default_rng(0).normal(size=(2, 2, 6, 6)).astype(np.float32)
    found = align_models(torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, stride=2, padding=1)), theirs, data).findings
    (cause,) = [one for one in found if one.kind == "cause"]
    assert (cause.rule, cause.confidence) == ("layer_setting", "proven")
    assert "padding_mode of 0 differs: zeros in the reference, replicate in the candidate" in str(cause.cause)
    assert "the reference's layer gives what the candidate's gives" in words()(cause.evidence)
