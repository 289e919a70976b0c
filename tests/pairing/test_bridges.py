"""The map of a wrong port behind its mistake: weights there are proven by values once the mistake is bridged."""

from dataclasses import replace

import numpy as np
import paddle
import torch

from reprod_log import align_models
from reprod_log.alignment.models import batches_for, sides_of
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.live_map import find_weight_map


class Reference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(6, 8), torch.nn.Linear(8, 8)
        self.c, self.d = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.b(torch.nn.functional.gelu(self.a(x))))
        return self.d(torch.sigmoid(self.c(x)))


class Port(paddle.nn.Layer):
    """Registered in another order and under names that say nothing."""

    def __init__(self, approximate: bool = False, last: bool = False) -> None:
        super().__init__()
        self.approximate, self.last = approximate, last
        self.p, self.q = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 3)
        self.r, self.s = paddle.nn.Linear(8, 8), paddle.nn.Linear(6, 8)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = paddle.tanh(self.r(paddle.nn.functional.gelu(self.s(x), approximate=self.approximate)))
        x = self.q(paddle.nn.functional.sigmoid(self.p(x)))
        return paddle.nn.functional.relu(x) if self.last else x


INPUTS = {"x": np.random.default_rng(0).normal(size=(5, 6)).astype("float32")}


def found(port: Port) -> WeightMap:
    torch.manual_seed(0)
    ours, theirs = sides_of(Reference(), port)
    return find_weight_map(ours, theirs, batches_for(ours, INPUTS)[0])


def pairs(weights: WeightMap) -> dict[str, str]:
    return {link.target: link.sources[0] for link in weights.links if link.target.endswith("weight")}


RIGHT = {"s.weight": "a.weight", "r.weight": "b.weight", "p.weight": "c.weight", "q.weight": "d.weight"}


def test_weights_before_a_mistake_at_the_end_are_found_by_values() -> None:
    weights = found(Port(last=True))
    assert not weights.agrees
    assert weights.is_known
    assert pairs(weights) == RIGHT


def test_two_mistakes_are_bridged() -> None:
    weights = found(Port(approximate=True, last=True))
    assert not weights.agrees
    assert weights.is_known
    assert pairs(weights) == RIGHT


def test_a_right_port_needs_no_bridge() -> None:
    weights = found(Port())
    assert weights.agrees
    assert not weights.bridged
    assert pairs(weights) == RIGHT


def test_a_mistake_in_a_port_with_other_names_has_a_cause_and_no_doubt() -> None:
    torch.manual_seed(0)
    alignment = align_models(Reference(), Port(approximate=True), INPUTS)
    assert not alignment.passed
    assert not alignment.doubts
    assert [one.confidence for one in alignment.findings if one.kind == "cause"]


class Twins(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = torch.nn.Linear(6, 8), torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.one(x)) * self.two(x))


class TwinsPort(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.u, self.v, self.w = paddle.nn.Linear(6, 8), paddle.nn.Linear(6, 8), paddle.nn.Linear(8, 3)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.w(paddle.nn.functional.sigmoid(self.u(x)) * self.v(x))


def test_weights_that_only_the_mistake_tells_apart_stay_in_doubt() -> None:
    torch.manual_seed(0)
    ours, theirs = sides_of(Twins(), TwinsPort())
    weights = find_weight_map(ours, theirs, batches_for(ours, INPUTS)[0])
    assert not weights.agrees
    assert not weights.is_known


class Same(paddle.nn.Layer):
    """Twins under its own names."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = paddle.nn.Linear(6, 8), paddle.nn.Linear(6, 8), paddle.nn.Linear(8, 3)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.out(paddle.tanh(self.one(x)) * self.two(x))


def test_a_map_across_a_mistake_gives_way_to_names_under_which_both_programs_agree(monkeypatch) -> None:
    torch.manual_seed(0)
    reference = Twins()
    ours, theirs = sides_of(reference, Same())
    right = find_weight_map(ours, theirs, batches_for(ours, INPUTS)[0])
    other = {"one": "two", "two": "one"}
    crossed = [
        replace(link, sources=(f"{other.get(layer, layer)}.{name}",))
        for link in right.links
        for layer, name in [link.sources[0].split(".")]
    ]
    wrong = WeightMap(tuple(crossed), agrees=False, complete=True, bridged=True)
    assert wrong.is_known
    monkeypatch.setattr("reprod_log.alignment.loading.search_weight_map", lambda *_: wrong)
    assert align_models(reference, Same(), INPUTS).passed


class Loop(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.both, self.out = torch.nn.Linear(6 + 5, 5), torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(len(x), 5, dtype=x.dtype)
        for _ in range(3):
            state = torch.tanh(self.both(torch.cat([x, state], 1)))
        return self.out(state)


class LoopPort(paddle.nn.Layer):
    """The state is halved where it is given on."""

    def __init__(self) -> None:
        super().__init__()
        self.u, self.v = paddle.nn.Linear(5 + 6, 5), paddle.nn.Linear(5, 3)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        state = paddle.zeros([len(x), 5], dtype=x.dtype)
        for _ in range(3):
            state = paddle.tanh(self.u(paddle.concat([x, 0.5 * state], 1)))
        return self.v(state)


def test_weights_that_only_met_a_state_of_zeros_stay_in_doubt() -> None:
    torch.manual_seed(0)
    ours, theirs = sides_of(Loop(), LoopPort())
    weights = find_weight_map(ours, theirs, batches_for(ours, INPUTS)[0])
    assert not weights.agrees
    assert not weights.is_known
    assert "u.weight" in weights.unproven
