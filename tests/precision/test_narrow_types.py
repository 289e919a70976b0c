"""Candidates in bfloat16, in float16 and under autocast: judged by what the type does to the reference."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from reprod_log import align_models
from reprod_log.frameworks.torch import FRAMEWORK
from reprod_log.verdict import Status

TYPES = (torch.bfloat16, torch.float16)


class Net(nn.Module):
    """A convolution, a norm that widens to float32 by itself, and what a mistake may change."""

    def __init__(self, slope: float = 0.0, cast: torch.dtype | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.scale = nn.Parameter(torch.ones(8 * 16))
        self.hidden = nn.Linear(8 * 16, 48)
        self.head = nn.Linear(48, 10)
        self.slope, self.cast = slope, cast

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.adaptive_avg_pool2d(functional.gelu(self.conv(x)), 4).flatten(1)
        wide = x if x.dtype == torch.float64 else x.float()
        x = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.scale
        x = functional.leaky_relu(self.hidden(x), self.slope)
        if self.cast is not None and x.dtype != torch.float64:
            x = x.to(self.cast).to(x.dtype)
        return self.head(x)


class Autocast(nn.Module):
    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return self.model(x)


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    wide = outputs if outputs.dtype == torch.float64 else outputs.float()
    return functional.cross_entropy(wide, targets)


def aligned(candidate: nn.Module, **kwargs: object):
    torch.manual_seed(3)
    reference = Net()
    inputs, targets = torch.randn(6, 3, 12, 12), torch.randint(0, 10, (6,))
    return align_models(reference, candidate, inputs, targets=targets, loss=loss, **kwargs)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("autocast", [False, True], ids=["weights", "autocast"])
def test_a_correct_candidate_passes_as_it_runs(dtype, autocast):
    alignment = aligned(Autocast(Net(), dtype) if autocast else Net().to(dtype))
    assert alignment.passed, str(alignment)
    assert not [one for one in alignment.findings if one.kind == "cause"]
    assert any(one.id == "note.experiments.emulated" for one in alignment.reference.notes)
    by_type = [one for one in alignment.floor.evidence if one.emulated is not None]
    assert any(one.key.phase == "loss" for one in by_type)


@pytest.mark.parametrize("autocast", [False, True], ids=["weights", "autocast"])
def test_a_small_mistake_is_found_by_the_float64_pass(autocast):
    wrong = Net(slope=0.003)
    alignment = aligned(Autocast(wrong, torch.bfloat16) if autocast else wrong.bfloat16())
    assert alignment.verdict.status is Status.FAIL
    assert "head" in str(alignment.verdict.first_divergence.key)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_still_narrower_type_inside_is_not_explained(dtype):
    alignment = aligned(Net(cast=torch.float8_e4m3fn).to(dtype))
    assert alignment.verdict.status is Status.PRECISION
    first = alignment.verdict.first_divergence
    assert first.reason.id == "reason.narrow"
    assert "head" in str(first.key)
    assert "input" in str(first.key)


class Tripled(torch.autograd.Function):
    """The identity, whose backward pass is wrong in narrow types alone."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient if gradient.dtype == torch.float64 else gradient * 3


def test_gradients_that_kinks_do_not_explain_do_not_pass():
    class Wrong(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Tripled.apply(super().forward(x))

    alignment = aligned(Wrong().bfloat16())
    assert alignment.verdict.status is Status.PRECISION
    assert alignment.verdict.first_divergence.key.phase in ("backward", "gradient")


def test_two_sides_in_one_narrow_type_are_held_to_it():
    torch.manual_seed(3)
    reference = Net().bfloat16()
    inputs, targets = torch.randn(6, 3, 12, 12), torch.randint(0, 10, (6,))
    same = align_models(reference, copy.deepcopy(reference), inputs, targets=targets, loss=loss, allow_unproven=True)
    assert same.passed, str(same)
    worse = Net(cast=torch.float8_e4m3fn).bfloat16()
    other = align_models(reference, worse, inputs, targets=targets, loss=loss)
    assert other.verdict.status is Status.PRECISION


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_emulation_is_as_far_from_the_truth_as_the_type_itself(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 32), nn.Softmax(-1))
    inputs = torch.randn(32, 64).to(dtype)
    model = model.to(dtype)
    truth = copy.deepcopy(model).double()(inputs.double())
    native = model(inputs)
    with FRAMEWORK.eager.emulated(str(dtype).removeprefix("torch.")):
        found = model(inputs)
    assert found.dtype == dtype
    ours, theirs = ((one.detach().double() - truth).square().mean().sqrt() for one in (found, native))
    assert 0.8 < float(ours / theirs) < 1.25


def test_the_emulation_writes_where_the_kernel_writes():
    weight = torch.ones(4, dtype=torch.bfloat16)
    norm = nn.BatchNorm1d(4).bfloat16()
    with FRAMEWORK.eager.emulated("bfloat16"):
        assert weight.mul_(1.5) is weight
        norm(torch.randn(16, 4).bfloat16() + 3)
    assert weight.tolist() == [1.5] * 4
    assert norm.running_mean.dtype == torch.bfloat16
    assert float(norm.running_mean.mean()) > 0.2
