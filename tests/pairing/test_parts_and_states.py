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
    monkeypatch.setattr("reprod_log.alignment.models.find_weight_map", lambda *_: doubtful)
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
