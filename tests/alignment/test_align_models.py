"""Two live models, one call: right ports pass, planted mistakes are found and placed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Status, align_models
from reprod_log.capture import flatten
from reprod_log.errors import CaptureError, UsageError

RNG = np.random.default_rng(0)
INPUTS = {"x": RNG.normal(size=(6, 10)).astype(np.float32)}
TARGETS = RNG.normal(size=(6, 4)).astype(np.float32)


def first(outputs: Any) -> Any:
    return next(tensor for _, tensor in flatten(outputs))


def squares(outputs: Any, targets: Any = None) -> Any:
    return ((first(outputs) - (0 if targets is None else targets)) ** 2).mean()


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.norm, self.leave = torch.nn.Linear(10, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
        self.act, self.drop = torch.nn.GELU(), torch.nn.Dropout(0.3)

    def forward(self, x: Any) -> Any:
        return self.leave(self.drop(self.act(self.norm(self.enter(x)))))


class PaddleNet(paddle.nn.Layer):
    def __init__(self, *, eps: float = 1e-5, approximate: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.out, self.inner = paddle.nn.Linear(16, 4), paddle.nn.Linear(10, 16)
        self.ln = paddle.nn.LayerNorm(16, epsilon=eps)
        self.gelu, self.dropout = paddle.nn.GELU(approximate), paddle.nn.Dropout(0.3)
        self.scale = scale

    def forward(self, x: Any) -> Any:
        return self.out(self.dropout(self.gelu(self.ln(self.inner(x))) * self.scale))


def torch_sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-3)


def paddle_sgd(model: Any, *, decay: float = 1e-3) -> Any:
    return paddle.optimizer.Momentum(0.1, 0.9, parameters=model.parameters(), weight_decay=decay)


def aligned(candidate: Any, **changes: Any) -> Any:
    options: dict[str, Any] = {
        "targets": TARGETS, "loss": squares, "optimizer": (torch_sgd, paddle_sgd), "steps": 3,
    }  # fmt: skip
    return align_models(TorchNet(), candidate, INPUTS, **{**options, **changes})


@pytest.mark.parametrize(
    "name",
    ["resnet18", "bert", "lstm_classifier", *(pytest.param(one, marks=pytest.mark.whole) for one in ("vit", "unet"))],
)
def test_independent_port_is_aligned_with_no_map(name: str) -> None:
    pair = import_module(f"models_pairs.{name}")
    ours, theirs = pair.build_torch(), pair.build_paddle()
    for model in (ours, theirs):
        # paddle's running variance is another one in training mode; its recurrent layers need that mode.
        model.eval() if name == "resnet18" else model.train()
    found = align_models(
        ours,
        theirs,
        pair.make_inputs(0),
        loss=squares,
        optimizer=(
            lambda model: torch.optim.SGD(model.parameters(), 0.05, momentum=0.9),
            lambda model: paddle.optimizer.Momentum(0.05, 0.9, parameters=model.parameters()),
        ),
        steps=2,
    )
    assert found.passed, str(found)
    assert found.floor is not None
    assert found.floor.basis == "both in float64"


def test_right_port_with_dropout_in_train_mode_passes() -> None:
    found = aligned(PaddleNet())
    assert found.status is Status.PASS, str(found)


@pytest.mark.usefixtures("weights_by_name")
@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"eps": 1e-3}, "isolated@step0/forward/norm#0:output"),
        pytest.param({"approximate": True}, "isolated@step0/forward/act#0:output", marks=pytest.mark.whole),
        ({"scale": 1 + 1e-5}, "step0/forward/drop#0:input.0"),
    ],
)
def test_planted_mistake_is_found_at_its_place(wrong: dict[str, Any], place: str) -> None:
    found = aligned(PaddleNet(**wrong))
    assert found.status is Status.FAIL
    assert found.first_divergence is not None
    assert found.first_divergence.key in (place, "isolated@step0/forward/#0:output"), str(found)


def test_missing_weight_decay_shows_in_the_update() -> None:
    found = aligned(PaddleNet(), optimizer=(torch_sgd, lambda model: paddle_sgd(model, decay=0.0)))
    assert found.first_divergence is not None
    assert found.first_divergence.key.phase == "update"


def test_models_are_left_as_they_were() -> None:
    ours, theirs = TorchNet(), PaddleNet()
    before = {name: value.detach().clone() for name, value in ours.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    align_models(ours, theirs, INPUTS, targets=TARGETS, loss=squares, optimizer=(torch_sgd, paddle_sgd), steps=2)
    assert torch.equal(torch.rand(2), expected)
    assert all(torch.equal(before[name], value) for name, value in ours.state_dict().items())
    assert all(parameter.grad is None for parameter in ours.parameters())
    assert theirs.training
    assert paddle.get_default_dtype() == "float32"
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.usefixtures("weights_by_name")
def test_forward_only_needs_neither_loss_nor_optimizer() -> None:
    ours, theirs = TorchNet().eval(), PaddleNet()
    theirs.eval()
    assert align_models(ours, theirs, INPUTS).passed
    wrong = PaddleNet(eps=1e-3)
    wrong.eval()
    assert not align_models(TorchNet().eval(), wrong, INPUTS).passed


def test_quick_leaves_out_the_precision_tier() -> None:
    found = aligned(PaddleNet(), quick=True)
    assert found.passed
    assert not any(row.key.run.startswith("injected") for row in found.comparison.rows)


def test_random_numbers_outside_of_dropout_layers_give_no_verdict() -> None:
    class Noisy(TorchNet):
        def forward(self, x: Any) -> Any:
            return super().forward(x + torch.rand(1))

    with pytest.raises(CaptureError, match="does not repeat itself.*random numbers"):
        align_models(Noisy(), PaddleNet(), INPUTS, transfer=False)


def test_loss_that_trains_nothing_is_refused_in_the_reference_and_found_in_the_candidate() -> None:
    inputs = RNG.normal(size=(4, 3)).astype(np.float32)
    ours, frozen = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2).requires_grad_(False)
    with pytest.raises(UsageError, match="no weight that takes a gradient"):
        align_models(frozen, torch.nn.Linear(3, 2), inputs, loss=squares)
    assert not align_models(ours, frozen, inputs, loss=squares).passed


def test_candidate_that_lacks_layers_is_compared_as_far_as_it_goes() -> None:
    class Short(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.only = paddle.nn.Linear(10, 16)

        def forward(self, x: Any) -> Any:
            return self.only(x)

    alignment = align_models(TorchNet(), Short(), INPUTS)
    assert alignment.status is Status.FAIL
    (doubt,) = (one for one in alignment.findings if one.rule == "unpaired_weights")
    assert "leave.weight" in str(doubt.cause)
    # What both sides have is compared, with the reference's weights.
    assert any(one.key.path == "enter" and one.status.passed for one in alignment.verdict.judgements)


def test_wrong_use_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="empty list"):
        align_models(TorchNet(), PaddleNet(), [])
    with pytest.raises(UsageError, match="pair"):
        align_models(TorchNet(), PaddleNet(), INPUTS, loss=(squares, squares, squares))
