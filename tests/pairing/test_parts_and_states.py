"""Weights found where one side has several tensors and the other one, and where loops begin with zeros."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn as pn
from paddle.nn import functional as pf
from torch import nn as tn

from reprod_log import Status, align_models
from reprod_log.frameworks.side import Side
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.live_map import find_weight_map

ROWS = np.random.default_rng(1).normal(size=(10, 8)).astype(np.float32)
SERIES = np.random.default_rng(2).normal(size=(3, 4, 5)).astype(np.float32)


def weight_map(reference: Any, candidate: Any, inputs: Any) -> WeightMap:
    return find_weight_map(Side(reference), Side(candidate), (inputs, None))


class Branches(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.branches = tn.ModuleList(tn.Linear(8, 4) for _ in range(5))
        self.leave = tn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        made = [torch.tanh(branch(x)) for branch in self.branches]
        return self.leave(made[0] * made[3] + made[1] * made[4] - made[2])


class Packed(pn.Layer):
    """All branches in one layer, cut apart behind the activation."""

    def __init__(self, order: tuple[int, ...]) -> None:
        super().__init__()
        self.packed, self.leave, self.order = pn.Linear(8, 20), pn.Linear(4, 4), order

    def forward(self, x: Any) -> Any:
        made = paddle.chunk(paddle.tanh(self.packed(x)), 5, -1)
        first, second, third, fourth, fifth = (made[place] for place in self.order)
        return self.leave(first * fourth + second * fifth - third)


def test_layers_that_are_joined_before_an_activation_are_found_in_any_order() -> None:
    for order in ((0, 1, 2, 3, 4), (2, 0, 4, 1, 3)):
        found = weight_map(Branches(), Packed(order), ROWS)
        assert found.agrees
        # Two products and their factors may change places; what is subtracted may not.
        sources = found.by_target["packed.weight"].sources
        assert len(sources) == 5
        assert sources[order[2]] == "branches.2.weight"


class Experts(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.norm = tn.Linear(8, 3, bias=False), tn.LayerNorm(8)
        self.experts = tn.ModuleList(tn.Sequential(tn.Linear(8, 6), tn.GELU(), tn.Linear(6, 8)) for _ in range(3))

    def forward(self, x: Any) -> Any:
        share = torch.softmax(self.gate(x), -1)
        return self.norm(x + sum(share[:, i : i + 1] * one(x) for i, one in enumerate(self.experts)))


class Stacked(pn.Layer):
    """The same experts in stacked tensors."""

    def __init__(self, *, scaled: bool = False) -> None:
        super().__init__()
        self.router, self.norm, self.scaled = pn.Linear(8, 3, bias_attr=False), pn.LayerNorm(8), scaled
        self.enter, self.leave = self.create_parameter([3, 8, 6]), self.create_parameter([3, 6, 8])
        self.first, self.second = self.create_parameter([3, 6]), self.create_parameter([3, 8])

    def forward(self, x: Any) -> Any:
        share = pf.softmax(self.router(x), -1) * (1.5 if self.scaled else 1.0)
        inner = pf.gelu(paddle.einsum("bd,edh->beh", x, self.enter) + self.first)
        made = paddle.einsum("beh,ehd->bed", inner, self.leave) + self.second
        return self.norm(x + (share.unsqueeze(-1) * made).sum(1))


def test_stacked_experts_are_found_and_pass() -> None:
    alignment = align_models(Experts(), Stacked(), ROWS)
    assert alignment.passed
    assert alignment.weight_map is not None
    sources = alignment.weight_map.by_target["enter"].sources
    assert sources == tuple(f"experts.{i}.0.weight" for i in range(3))
    assert weight_map(Stacked(), Experts(), ROWS).agrees


def test_a_mistake_behind_stacked_experts_is_found() -> None:
    alignment = align_models(Experts(), Stacked(scaled=True), ROWS)
    assert alignment.status is Status.FAIL


def test_a_pass_through_a_map_that_was_not_proven_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_weight_map(Side(Experts()), Side(Stacked()), (ROWS, None))
    doubtful = replace(found, agrees=False, unproven=("enter",))
    monkeypatch.setattr("reprod_log.alignment.loading.search_weight_map", lambda *_: doubtful)
    assert align_models(Experts(), Stacked(), ROWS).status is Status.PASS, "a run of both with this map proves it"
    monkeypatch.setattr("reprod_log.alignment.loading.proven_map", lambda *_: None)
    assert align_models(Experts(), Stacked(), ROWS).status is Status.UNPROVEN


class Fused(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.leave = tn.LSTM(5, 6, batch_first=True), tn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.leave(self.lstm(x)[0][:, -1])


class Gates(pn.Layer):
    """A layer for each gate, input and state side by side; one tensor of zeros for both states."""

    def __init__(self, *, forgetful: bool = False) -> None:
        super().__init__()
        self.forget, self.enter, self.new, self.out = (pn.Linear(11, 6) for _ in range(4))
        self.leave, self.forgetful = pn.Linear(6, 3), forgetful

    def forward(self, x: Any) -> Any:
        h = c = paddle.zeros([x.shape[0], 6], x.dtype)
        for step in range(x.shape[1]):
            both = paddle.concat([x[:, step], h], axis=1)
            kept = pf.sigmoid(self.forget(both)) * c
            c = (0.5 * kept if self.forgetful else kept) + pf.sigmoid(self.enter(both)) * paddle.tanh(self.new(both))
            h = pf.sigmoid(self.out(both)) * paddle.tanh(c)
        return self.leave(h)


def test_gates_are_found_although_their_states_begin_with_zeros() -> None:
    assert weight_map(Fused(), Gates(), SERIES).agrees


def test_no_map_agrees_when_a_loop_forgets_too_much() -> None:
    assert not weight_map(Fused(), Gates(forgetful=True), SERIES).agrees


class Readers(tn.Module):
    """Learned queries that read from a sequence, repeated for every sample."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.queries = tn.Parameter(torch.randn(3, 8))
        self.read, self.leave = tn.MultiheadAttention(8, 2, batch_first=True), tn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        asked = self.queries.expand(x.shape[0], -1, -1)
        return self.leave(asked + self.read(asked, x, x, need_weights=False)[0])


class Pooling(pn.Layer):
    """The same with queries that are the same for all samples until they meet the keys."""

    def __init__(self, *, scale: float = 4**-0.5) -> None:
        super().__init__()
        self.latent, self.scale = self.create_parameter([3, 8]), scale
        self.ask, self.kv, self.out, self.head = pn.Linear(8, 8), pn.Linear(8, 16), pn.Linear(8, 8), pn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        asked = self.ask(self.latent).reshape([1, 3, 2, 4]).transpose([0, 2, 1, 3])
        keys, values = self.kv(x).reshape([*x.shape[:2], 2, 2, 4]).transpose([2, 0, 3, 1, 4])
        shares = pf.softmax(self.scale * paddle.matmul(asked, keys, transpose_y=True))
        read = paddle.matmul(shares, values).transpose([0, 2, 1, 3]).reshape([-1, 3, 8])
        return self.head(self.latent + self.out(read))


TOKENS = np.random.default_rng(1).normal(size=(4, 5, 8)).astype(np.float32)


def test_learned_queries_are_an_input_of_the_search() -> None:
    assert align_models(Readers(), Pooling(), TOKENS).passed
    assert weight_map(Pooling(), Readers(), TOKENS).agrees


@pytest.mark.whole
def test_a_mistake_behind_learned_queries_is_found_and_not_refused() -> None:
    assert align_models(Readers(), Pooling(scale=8**-0.5), TOKENS).status is Status.FAIL


class Token(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.read, self.leave = (
            tn.LayerNorm(8),
            tn.MultiheadAttention(8, 2, batch_first=True),
            tn.Linear(8, 3),
        )

    def forward(self, x: Any) -> Any:
        given = self.norm(x)
        return self.leave(x + self.read(given, given, given, need_weights=False)[0])


class Separate(pn.Layer):
    """Attention with a layer for each part, the queries scaled before they meet the keys."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = pn.LayerNorm(8), pn.Linear(8, 3)
        self.one, self.two, self.three, self.four = (pn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Any) -> Any:
        given = self.norm(x)
        q, k, v = (
            layer(given).reshape([*x.shape[:2], 2, 4]).transpose([0, 2, 1, 3])
            for layer in (self.one, self.two, self.three)
        )
        read = paddle.matmul(pf.softmax(paddle.matmul(q * 0.5, k, transpose_y=True)), v)
        return self.head(x + self.four(read.transpose([0, 2, 1, 3]).reshape(x.shape)))


def test_a_bias_that_a_softmax_hides_is_not_decided_by_it() -> None:
    links = weight_map(Token(), Separate(), TOKENS).by_target
    assert links["two.bias"].sources == ("read.in_proj_bias",)
    assert align_models(Token(), Separate(), TOKENS).passed


class Selective(tn.Module):
    """One layer for three things of unequal sizes, the last two of which meet only later."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.all, self.leave = tn.Linear(8, 10, bias=False), tn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        pace, enter, read = self.all(x).split([2, 4, 4], -1)
        return self.leave(torch.sigmoid(pace.sum(-1, keepdim=True)) * enter * torch.softmax(read, -1))


class Selected(pn.Layer):
    """The same with a layer for each."""

    def __init__(self) -> None:
        super().__init__()
        self.pace, self.enter, self.read = (pn.Linear(8, size, bias_attr=False) for size in (2, 4, 4))
        self.leave = pn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        share = pf.sigmoid(self.pace(x).sum(-1, keepdim=True))
        enter = self.enter(x)
        return self.leave(share * enter * pf.softmax(self.read(x)))


def test_parts_of_unequal_sizes_compete_until_they_meet() -> None:
    assert weight_map(Selective(), Selected(), TOKENS).agrees
    assert weight_map(Selected(), Selective(), TOKENS).agrees


class Last(tn.Module):
    """A norm over channels that are the last axis."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.norm, self.leave = tn.Conv2d(3, 6, 1), tn.LayerNorm(6, eps=1e-6), tn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.leave(self.norm(0.01 * self.enter(x).permute(0, 2, 3, 1)).mean((1, 2)))


class First(pn.Layer):
    """The same norm by hand, over channels that are the first axis; as many as there are rows and columns."""

    class Norm(pn.Layer):
        def __init__(self, eps: float) -> None:
            super().__init__()
            self.scale, self.shift = self.create_parameter([6]), self.create_parameter([6], is_bias=True)
            self.eps = eps

        def forward(self, x: Any) -> Any:
            apart = x - x.mean(1, keepdim=True)
            x = apart / paddle.sqrt((apart * apart).mean(1, keepdim=True) + self.eps)
            return x * self.scale.reshape([1, -1, 1, 1]) + self.shift.reshape([1, -1, 1, 1])

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.enter, self.norm, self.leave = pn.Conv2D(3, 6, 1), First.Norm(eps), pn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.leave(self.norm(0.01 * self.enter(x)).mean([2, 3]))


def test_what_differs_is_measured_in_the_layout_of_its_side() -> None:
    images = np.random.default_rng(2).normal(size=(2, 3, 6, 6)).astype(np.float32)
    assert align_models(Last(), First(1e-6), images).passed
    alignment = align_models(Last(), First(1e-5), images)
    first = alignment.verdict.first_divergence
    assert first is not None
    assert (first.key.path, first.key.run) == ("norm", ""), "it cannot be run alone on the other's input"
    row = next(one for one in alignment.comparison.rows if one.key == first.key)
    assert row.measurement is not None
    assert row.measurement.rel_l2 < 0.5, "another epsilon, not another layout"
