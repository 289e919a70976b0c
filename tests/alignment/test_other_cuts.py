"""Right ports that two authors cut into modules, calls and arguments in their own way; and a mistake in each."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn as pn
from torch import nn as tn

from reprod_log import align_models

RNG = np.random.default_rng(0)
WIDTH = 6


def array(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def squares(outputs: Any, targets: Any) -> Any:
    return ((outputs - targets) ** 2).mean()


def compared(reference: Any, candidate: Any, inputs: Any, targets: Any) -> Any:
    makers = (
        lambda model: torch.optim.Adam(model.parameters(), 1e-2),
        lambda model: paddle.optimizer.Adam(1e-2, parameters=model.parameters()),
    )
    return align_models(
        reference, candidate, inputs, targets=targets, loss=squares, optimizer=makers, steps=2, quick=True
    )


class TorchScaled(tn.Module):
    """The norm is the framework's, the scale after the branch a tensor of the block, the residual outside."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = tn.RMSNorm(WIDTH, eps=1e-6), tn.Linear(WIDTH, WIDTH)
        self.gamma = tn.Parameter(torch.rand(WIDTH, 1))

    def forward(self, x: Any) -> Any:
        return self.gamma[:, 0] * torch.tanh(self.mix(self.norm(x)))


class TorchBlocks(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.blocks = tn.Linear(4, WIDTH), tn.ModuleList([TorchScaled(), TorchScaled()])
        for block in self.blocks:
            tn.init.uniform_(block.norm.weight, 0.5, 1.5)

    def forward(self, x: Any) -> Any:
        x = self.enter(x)
        for block in self.blocks:
            x = x + block(x)
        return x


class HandNorm(pn.Layer):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.scale, self.eps = self.create_parameter([WIDTH]), eps

    def forward(self, x: Any) -> Any:
        return x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.scale


class Scale(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([1, WIDTH])

    def forward(self, x: Any) -> Any:
        return x * self.weight


class PaddleBlock(pn.Layer):
    """The norm by hand, the scale a module, the residual inside."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.ls, self.fc, self.pre = Scale(), pn.Linear(WIDTH, WIDTH), HandNorm(eps)

    def forward(self, x: Any) -> Any:
        return x + self.ls(paddle.tanh(self.fc(self.pre(x))))


class PaddleBlocks(pn.Layer):
    def __init__(self, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.body, self.embed = pn.Sequential(PaddleBlock(eps), PaddleBlock(eps)), pn.Linear(4, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.body(self.embed(x))


def test_hand_written_norms_and_scales_are_aligned_when_named_and_cut_otherwise() -> None:
    found = compared(TorchBlocks(), PaddleBlocks(), (array(3, 4),), array(3, WIDTH))
    assert found.passed, str(found)
    keys = {one.key for one in found.verdict.judgements}
    assert {"step0/gradient/blocks.1.gamma:raw", "isolated@step0/forward/blocks.0.norm#0:output"} <= keys


def test_wrong_norm_is_placed_although_nothing_proves_the_names() -> None:
    found = compared(TorchBlocks(), PaddleBlocks(eps=1e-2), (array(3, 4),), array(3, WIDTH))
    assert not found.passed
    assert "forward/blocks.0.norm#0:output" in str(found.first_divergence.key)


class TorchGate(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = tn.Linear(WIDTH, WIDTH), tn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any, skip: Any) -> Any:
        return 2 * torch.tanh(self.a(x)) + self.b(skip), x


class TorchGates(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.first, self.second = tn.Linear(4, WIDTH), TorchGate(), TorchGate()

    def forward(self, x: Any) -> Any:
        x = self.enter(x)
        y, _ = self.first(x, x * 0.5)
        return self.second(y, x)[0]


class PaddleGate(pn.Layer):
    """The other argument first, the other branch first, one output instead of two."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.p, self.q, self.factor = pn.Linear(WIDTH, WIDTH), pn.Linear(WIDTH, WIDTH), factor

    def forward(self, res: Any, h: Any = None) -> Any:
        return self.q(res) + self.factor * paddle.tanh(self.p(h))


class PaddleGates(pn.Layer):
    def __init__(self, *, factor: float = 2) -> None:
        super().__init__()
        self.g2, self.g1, self.e = PaddleGate(factor), PaddleGate(factor), pn.Linear(4, WIDTH)

    def forward(self, x: Any) -> Any:
        x = self.e(x)
        return self.g2(x, h=self.g1(x * 0.5, h=x))


def test_arguments_and_branches_are_lined_up_when_they_come_in_another_order() -> None:
    found = compared(TorchGates(), PaddleGates(), (array(3, 4),), array(3, WIDTH))
    assert found.passed, str(found)
    # Run alone, with its own order of arguments.
    assert "isolated@step0/backward/first#0:input.1" in {one.key for one in found.verdict.judgements}


def test_wrong_factor_between_branches_is_placed() -> None:
    found = compared(TorchGates(), PaddleGates(factor=3), (array(3, 4),), array(3, WIDTH))
    assert str(found.first_divergence.key) == "step0/forward/first#0:output.0"


class TorchTowers(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tower = tn.Sequential(tn.Linear(4, WIDTH), tn.ReLU(), tn.Linear(WIDTH, 3))
        self.temperature = tn.Parameter(torch.tensor(0.3))

    def forward(self, a: Any, b: Any) -> Any:
        return self.temperature.exp() * self.tower(a) @ self.tower(b).T


class PaddleTowers(pn.Layer):
    """The second input first, or both at once."""

    def __init__(self, *, together: bool, wrong: bool = False) -> None:
        super().__init__()
        self.l2, self.l1, self.together, self.wrong = pn.Linear(WIDTH, 3), pn.Linear(4, WIDTH), together, wrong
        self.scale = self.create_parameter([1])

    def tower(self, x: Any) -> Any:
        return self.l2(paddle.nn.functional.relu(self.l1(x)))

    def forward(self, a: Any, b: Any) -> Any:
        if self.together:
            u, v = paddle.split(self.tower(paddle.concat([a, b], 0)), 2, 0)
        else:
            v = self.tower(b)
            u = self.tower(a)
        v = v.flip([0]) if self.wrong else v
        return paddle.exp(self.scale) * paddle.matmul(u, v, transpose_y=True)


@pytest.mark.parametrize("together", [False, True])
def test_shared_tower_is_aligned_when_called_otherwise(together: bool) -> None:
    found = compared(TorchTowers(), PaddleTowers(together=together), (array(5, 4), array(5, 4)), array(5, 5))
    assert found.passed, str(found)


@pytest.mark.parametrize("together", [False, True])
def test_mistake_behind_a_shared_tower_is_found(together: bool) -> None:
    port = PaddleTowers(together=together, wrong=True)
    found = compared(TorchTowers(), port, (array(5, 4), array(5, 4)), array(5, 5))
    assert str(found.first_divergence.key) == "step0/forward/#0:output"


class TorchAttention(tn.Module):
    """Time first inside, a table of positions among the buffers, attention weights that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.attention, self.leave = tn.Linear(4, 8), tn.MultiheadAttention(8, 2), tn.Linear(8, 3)
        self.register_buffer("table", torch.linspace(0, 1, 5)[:, None, None] * torch.ones(8))

    def forward(self, x: Any) -> Any:
        x = self.enter(x).transpose(0, 1) + self.table
        y, _ = self.attention(query=x, key=x, value=x)
        return self.leave(x + y).transpose(0, 1)


class PaddleAttention(pn.Layer):
    """Batch first, projections of its own."""

    def __init__(self, *, heads: int = 2) -> None:
        super().__init__()
        self.out, self.heads = pn.Linear(8, 3), heads
        self.wo, self.wv, self.wk, self.wq = (pn.Linear(8, 8) for _ in range(4))
        self.inp = pn.Linear(4, 8)

    def split(self, x: Any) -> Any:
        return x.reshape([0, 0, self.heads, 8 // self.heads]).transpose([0, 2, 1, 3])

    def forward(self, x: Any) -> Any:
        x = self.inp(x)
        x = x + paddle.linspace(0, 1, 5).astype(x.dtype)[:, None] * paddle.ones([8], dtype=x.dtype)
        q, k, v = self.split(self.wq(x)), self.split(self.wk(x)), self.split(self.wv(x))
        scores = paddle.matmul(q, k, transpose_y=True) / 2
        mixed = paddle.matmul(paddle.nn.functional.softmax(scores), v).transpose([0, 2, 1, 3]).reshape([0, 0, 8])
        return self.out(x + self.wo(mixed))


def test_attention_time_first_is_aligned_with_one_written_out_batch_first() -> None:
    found = compared(TorchAttention(), PaddleAttention(), (array(3, 5, 4),), array(3, 5, 3))
    assert found.passed, str(found)
    assert "step1/backward/leave#0:output" in {one.key for one in found.verdict.judgements}


@pytest.mark.whole
def test_attention_with_other_heads_is_found() -> None:
    found = compared(TorchAttention(), PaddleAttention(heads=4), (array(3, 5, 4),), array(3, 5, 3))
    assert not found.passed
    assert str(found.first_divergence.key) == "step0/forward/leave#0:input.0"
