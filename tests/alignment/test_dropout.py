"""Every dropout gets the same masks on both sides: of a layer, called by itself, in place, fused, or run again."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch
import torch.utils.checkpoint

from reprod_log import align_models
from reprod_log.errors import CaptureError

INPUT = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


def loss(outputs: Any) -> Any:
    return (outputs**2).mean()


class Ours(torch.nn.Module):
    """Two linear layers of torch with `between` them."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 32), torch.nn.Linear(32, 3)
        self.between = between

    def forward(self, x: Any) -> Any:
        return self.two(self.between(torch.relu(self.one(x))))


class Theirs(paddle.nn.Layer):
    """The same in paddle."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.one, self.two = paddle.nn.Linear(8, 32), paddle.nn.Linear(32, 3)
        self.between = between

    def forward(self, x: Any) -> Any:
        return self.two(self.between(paddle.nn.functional.relu(self.one(x))))


class ByItself(paddle.nn.Layer):
    def forward(self, x: Any) -> Any:
        return paddle.nn.functional.dropout(x, 0.3, training=self.training)


def in_place(lab: Any, **settings: Any) -> Any:
    """Behind something that does not need its result for the backward pass."""
    return lab.nn.Sequential(lab.nn.Hardswish(), lab.nn.Dropout(0.3, **settings))


class Twice(torch.nn.Module):
    """A part whose forward pass is run again in the backward pass, or not."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again

    def forward(self, x: Any) -> Any:
        if not self.again:
            return self.once(x)
        return torch.utils.checkpoint.checkpoint(self.once, x, use_reentrant=False)

    def once(self, x: Any) -> Any:
        return torch.tanh(torch.nn.functional.dropout(torch.tanh(x), 0.3))


def stochastic_depth(x: Any) -> Any:
    return x * x.new_empty((x.shape[0], 1)).bernoulli_(0.5) / 0.5


def attention(x: Any) -> Any:
    parts = x.view(x.shape[0], 4, 8)
    fused = torch.nn.functional.scaled_dot_product_attention(parts, parts, parts, dropout_p=0.3)
    return fused.flatten(1)


def attention_by_hand(x: Any) -> Any:
    parts = x.view(x.shape[0], 4, 8)
    weights = torch.softmax(parts @ parts.transpose(-1, -2) / 8**0.5, -1)
    return (torch.nn.functional.dropout(weights, 0.3) @ parts).flatten(1)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Ours(torch.nn.Dropout(0.3)), Theirs(ByItself())),
        (Ours(in_place(torch, inplace=True)), Theirs(in_place(paddle))),
        (Ours(lambda x: torch.nn.functional.dropout(x, 0.3)), Theirs(lambda x: paddle.nn.functional.dropout(x, 0.3))),
        (Ours(Twice(again=False)), Ours(Twice(again=True))),
        (Ours(stochastic_depth), Ours(stochastic_depth)),
        (Ours(attention_by_hand), Ours(attention)),
    ],
    ids=("layer and function", "in place", "functions", "checkpointed", "stochastic depth", "fused attention"),
)
def test_the_same_dropout_written_otherwise_passes(ours: Any, theirs: Any) -> None:
    found = align_models(ours, theirs, INPUT, loss=loss)
    assert found.verdict.passed, found.verdict.first_divergence


def test_another_rate_of_a_function_is_found() -> None:
    found = align_models(Ours(torch.nn.Dropout(0.4)), Theirs(ByItself()), INPUT, loss=loss)
    assert not found.verdict.passed


def test_a_dropout_that_the_candidate_alone_has_is_named() -> None:
    found = align_models(Ours(lambda x: x), Theirs(paddle.nn.Dropout(0.3)), INPUT, loss=loss)
    assert found.verdict.first_divergence is not None
    assert found.verdict.first_divergence.key.phase == "forward"
    (cause,) = [one for one in found.findings if one.kind == "cause"]
    assert "dropout in the candidate" in str(cause.cause)


def test_whole_channels_are_not_single_elements() -> None:
    images = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
    ours = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Dropout2d(0.5), torch.nn.Conv2d(4, 2, 3))
    right = paddle.nn.Sequential(paddle.nn.Conv2D(3, 4, 3), paddle.nn.Dropout2D(0.5), paddle.nn.Conv2D(4, 2, 3))
    wrong = paddle.nn.Sequential(paddle.nn.Conv2D(3, 4, 3), paddle.nn.Dropout(0.5), paddle.nn.Conv2D(4, 2, 3))
    assert align_models(ours, right, images, loss=loss).verdict.passed
    assert not align_models(ours, wrong, images, loss=loss).verdict.passed


def test_random_numbers_of_the_candidate_alone_give_no_verdict() -> None:
    with pytest.raises(CaptureError, match="the candidate does not repeat itself"):
        align_models(Ours(torch.nn.Identity()), Theirs(lambda x: x + paddle.rand(x.shape)), INPUT, loss=loss)


def test_an_activation_inside_a_norm_is_a_way_of_writing() -> None:
    images = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    ours = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 3)
    )
    theirs = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 4, 3), paddle.nn.BatchNorm(4, act="relu"), paddle.nn.Conv2D(4, 2, 3)
    )
    ours.eval()
    theirs.eval()
    found = align_models(ours, theirs, images)
    assert found.verdict.passed, found.verdict.first_divergence
    assert not [one for one in found.findings if one.kind == "cause"]


def test_layers_alone_run_in_the_mode_that_a_step_sets() -> None:
    """In training both frameworks' batch norms keep another running variance."""

    def step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        model.eval()
        (model(*inputs) ** 2).mean().backward()

    images = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
    ours = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    theirs = paddle.nn.Sequential(paddle.nn.Conv2D(3, 4, 3), paddle.nn.BatchNorm2D(4))
    found = align_models(ours, theirs, images, step=step)
    assert found.verdict.passed, found.verdict.first_divergence
