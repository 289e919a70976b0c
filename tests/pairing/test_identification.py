"""Weights that are found by asking both programs: other orders, other forms, several merged into one."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch
from paddle import nn as pn
from torch import nn as tn

from reprod_log import Status, align_models
from reprod_log.frameworks.side import Side
from reprod_log.pairing.links import Recipe, WeightMap, link_of_places
from reprod_log.pairing.live_map import find_weight_map
from reprod_log.pairing.saved_map import map_from_dict, map_to_dict

IMAGES = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
TOKENS = np.random.default_rng(1).normal(size=(2, 5, 8)).astype(np.float32)


def weight_map(reference: Any, candidate: Any, inputs: Any) -> WeightMap:
    return find_weight_map(Side(reference), Side(candidate), (inputs, None))


class Patches(tn.Module):
    """Every patch of four by four, rows first and channels last, through one layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.leave = tn.Linear(48, 8), tn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        cut = x.reshape(2, 3, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(2, 4, 48)
        return self.leave(torch.tanh(self.enter(cut)))


class Convolved(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.out = pn.Conv2D(3, 8, 4, stride=4), pn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.out(paddle.tanh(self.patch(x).flatten(2).transpose([0, 2, 1])))


class Normed(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = tn.Conv2d(3, 4, 3), tn.BatchNorm2d(4)
        with torch.no_grad():
            self.norm.running_mean.uniform_(-0.5, 0.5)
            self.norm.running_var.uniform_(0.5, 1.5)
            self.norm.weight.uniform_(0.5, 1.5)
        self.eval()

    def forward(self, x: Any) -> Any:
        return torch.relu(self.norm(self.conv(x)))


class Folded(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pn.Conv2D(3, 4, 3)
        self.eval()

    def forward(self, x: Any) -> Any:
        return paddle.nn.functional.relu(self.conv(x))


class Heads(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.leave = tn.Linear(8, 8), tn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.leave(torch.tanh(self.enter(x)))


class OtherHeads(pn.Layer):
    """The four heads between the two layers stand in another order; the second layer expects them so."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.enter, self.leave, self.factor = pn.Linear(8, 8), pn.Linear(8, 8), factor

    def forward(self, x: Any) -> Any:
        inner = paddle.tanh(self.enter(x))
        if self.factor != 1.0:
            return self.leave(inner) * self.factor
        heads = inner.reshape([2, 5, 4, 2])
        moved = paddle.stack([heads[:, :, place] for place in (2, 0, 3, 1)], 2)
        return self.leave(moved.reshape([2, 5, 8]))


class Einsum(pn.Layer):
    """The first layer's weight by heads, in one contraction."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.bias = self.create_parameter([2, 8, 4]), self.create_parameter([2, 4])
        self.leave = pn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        heads = paddle.einsum("btd,hdk->bthk", x, self.enter) + self.bias
        return self.leave(paddle.tanh(heads).reshape([2, 5, 8]))


class Interleaved(tn.Module):
    """One layer on a tensor and on what comes of it, element by element."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.both, self.leave = tn.Linear(8, 8), tn.Linear(16, 8), tn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        x = torch.tanh(self.enter(x))
        both = torch.stack([x, torch.sigmoid(torch.tanh(x))], -1).flatten(-2)
        return self.leave(torch.tanh(self.both(both)))


class Apart(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = pn.Linear(8, 8), pn.Linear(8, 8)
        self.first, self.second = pn.Linear(8, 8), pn.Linear(8, 8, bias_attr=False)

    def forward(self, x: Any) -> Any:
        x = paddle.tanh(self.enter(x))
        after = paddle.nn.functional.sigmoid(paddle.tanh(x))
        return self.leave(paddle.tanh(self.second(after) + self.first(x)))


def test_weights_of_a_contraction_by_heads_are_found() -> None:
    found = weight_map(Heads(), Einsum(), TOKENS)
    assert found.agrees
    assert found.by_target["enter"].sources == ("enter.weight",)


def test_weights_on_a_tensor_and_on_what_comes_of_it_are_found() -> None:
    found = weight_map(Interleaved(), Apart(), TOKENS)
    assert found.agrees
    assert {name: found.by_target[name].sources for name in ("first.weight", "second.weight")} == {
        "first.weight": ("both.weight",),
        "second.weight": ("both.weight",),
    }


def test_a_weight_is_found_when_it_is_stored_in_another_form() -> None:
    found = weight_map(Patches(), Convolved(), IMAGES)
    assert found.agrees
    assert found.by_target["patch.weight"].sources == ("enter.weight",)
    assert not found.by_target["patch.weight"].is_permuted


def test_a_norm_that_is_folded_into_the_layer_before_it_is_found_and_left_to_the_user() -> None:
    alignment = align_models(Normed(), Folded(), IMAGES)
    # A norm that was forgotten would give the same numbers.
    assert alignment.status is Status.UNPROVEN, str(alignment)
    assert align_models(Normed(), Folded(), IMAGES, allow_unproven=True).passed
    assert alignment.weight_map is not None
    link = alignment.weight_map.by_target["conv.weight"]
    assert link.is_computed
    assert set(link.sources) == {"conv.weight", "norm.weight", "norm.running_var"}
    assert "computed_weights" in {one.rule for one in alignment.findings}
    assert map_from_dict(map_to_dict(alignment.weight_map)).by_target["conv.weight"].sources == link.sources


class Scaled(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = tn.Linear(8, 8), tn.Linear(8, 4)
        self.gamma = tn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x: Any) -> Any:
        return self.leave(torch.relu(self.enter(x)) * self.gamma)


class Unscaled(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = pn.Linear(8, 8), pn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.leave(paddle.nn.functional.relu(self.enter(x)))


def test_a_scale_that_the_port_lacks_never_passes_as_a_merged_one() -> None:
    alignment = align_models(Scaled(), Unscaled(), TOKENS, loss=lambda out: (out * out).mean())
    assert not alignment.passed, str(alignment)


def test_elements_in_another_order_inside_one_weight_are_not_proven() -> None:
    alignment = align_models(Heads(), OtherHeads(), TOKENS)
    assert not alignment.passed
    assert alignment.verdict.first_divergence is None
    assert "permuted_weight" in {one.rule for one in alignment.findings}


class Mixed(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.mix = tn.Linear(8, 8), tn.Parameter(torch.randn(5, 5))

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.mix @ self.enter(x))


class TurnedMix(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.mix = pn.Linear(8, 8), self.create_parameter([5, 5])

    def forward(self, x: Any) -> Any:
        return paddle.tanh(self.mix.T @ self.enter(x))


def test_a_tensor_of_no_layer_that_matches_only_transposed_is_not_proven() -> None:
    alignment = align_models(Mixed(), TurnedMix(), TOKENS)
    assert not alignment.passed
    assert "permuted_weight" in {one.rule for one in alignment.findings}


def test_a_forgotten_factor_is_not_taken_for_another_weight() -> None:
    found = weight_map(Heads(), OtherHeads(factor=2.0), TOKENS)
    assert not found.agrees


def test_places_are_told_in_the_plainest_words() -> None:
    places = np.arange(12).reshape(3, 4)
    assert link_of_places("b", (4, 3), ["a"], [(3, 4)], places.T).recipe == Recipe(axes=(1, 0))
    folded = places.reshape(3, 2, 2).transpose(2, 0, 1)
    link = link_of_places("b", (2, 6), ["a"], [(3, 4)], folded)
    assert isinstance(link.recipe, Recipe)
    assert link.recipe.fold == (6, 2)
    assert np.array_equal(link.apply([places]), folded.reshape(2, 6))
    mixed = np.random.default_rng(0).permutation(12)
    assert np.array_equal(link_of_places("b", (12,), ["a"], [(3, 4)], mixed).apply([places]), mixed)
