"""Values decide which weight is which: other formulations pass, wrong ones are placed, and nothing is left out."""

from typing import Any

import numpy as np
import paddle
import torch

from reprod_log.alignment.models import align_models
from reprod_log.pairing.links import Link, Recipe, WeightMap, joined_recipes, single_recipes

DATA = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


class Named(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x)))


class Bare(paddle.nn.Layer):
    """The same with parameters of its own, the last layer's first."""

    def __init__(self) -> None:
        super().__init__()
        self.w2, self.b2 = self.create_parameter([6, 3]), self.create_parameter([3])
        self.w1, self.b1 = self.create_parameter([6, 6]), self.create_parameter([6])

    def between(self, x: Any) -> Any:
        return paddle.tanh(x)

    def forward(self, x: Any) -> Any:
        return self.between(x @ self.w1 + self.b1) @ self.w2 + self.b2


def loss(outputs: Any) -> Any:
    return (outputs * outputs).sum()


def loaded(model: Any, source: Named) -> Any:
    """The weights by hand."""
    values = {"w1": source.first.weight.T, "b1": source.first.bias, "w2": source.last.weight.T, "b2": source.last.bias}
    for name, value in values.items():
        getattr(model, name).set_value(value.detach().numpy())
    return model


def test_port_with_parameters_of_its_own_passes_and_has_a_map() -> None:
    found = align_models(Named(), Bare(), (DATA,), loss=loss)
    assert found.passed
    assert found.weight_map is not None
    assert {link.target: link.sources for link in found.weight_map.links} == {
        "w1": ("first.weight",),
        "b1": ("first.bias",),
        "w2": ("last.weight",),
        "b2": ("last.bias",),
    }
    assert not [one for one in found.findings if one.kind == "cause"]


def test_weights_loaded_by_hand_pass_when_they_are_those_of_the_map() -> None:
    ours = Named()
    assert align_models(ours, loaded(Bare(), ours), (DATA,), loss=loss, transfer=False).passed


def test_weights_loaded_by_hand_do_not_pass_when_one_is_another() -> None:
    ours = Named()
    theirs = loaded(Bare(), ours)
    theirs.b2.set_value(ours.last.bias.detach().numpy()[::-1].copy())
    assert not align_models(ours, theirs, (DATA,), loss=loss, transfer=False).passed


class Wrong(Bare):
    def between(self, x: Any) -> Any:
        return paddle.nn.functional.relu(x)


def test_wrong_port_that_names_cannot_pair_fails_at_its_line_and_is_not_refused() -> None:
    found = align_models(Named(), Wrong(), (DATA,), loss=loss)
    assert not found.passed
    assert found.first_divergence is not None
    assert "relu" in str(found)


class Cut(Bare):
    def between(self, x: Any) -> Any:
        return paddle.tanh(x).detach()


def test_gradient_that_is_lost_does_not_pass_with_a_loss_nor_without() -> None:
    assert not align_models(Named(), Cut(), (DATA,), loss=loss).passed
    assert not align_models(Named(), Cut(), (DATA,)).passed


def test_rows_of_a_weight_are_offered_from_both_ends() -> None:
    found = [recipe for recipe in single_recipes((9, 4), (5, 4)) if recipe.axes is None]
    assert [recipe.span for recipe in found] == [(0, 0, 5), (0, 4, 9)]
    whole = np.arange(36).reshape(9, 4)
    assert np.array_equal(found[1].apply([whole], (5, 4)), whole[4:])


def test_gate_by_hand_is_a_part_of_both_weights_of_a_fused_layer() -> None:
    inner, outer = np.arange(8 * 3).reshape(8, 3), 100 + np.arange(8 * 2).reshape(8, 2)
    wanted = np.concatenate([inner[2:4], outer[2:4]], 1).T
    made = [recipe.apply([inner, outer], (5, 2)) for recipe in joined_recipes([(8, 3), (8, 2)], (5, 2))]
    assert any(np.array_equal(one, wanted) for one in made)


def test_gradient_of_a_summed_part_goes_to_its_place_in_each_summand() -> None:
    recipe = Recipe(part=(0, 1, 4), added=True)
    weights = WeightMap((Link("b", (2,), ("ih", "hh"), ((8,), (8,)), recipe),))
    given = {"ih": np.arange(8.0), "hh": np.arange(8.0)}
    assert np.array_equal(weights.gradients(given)["b"], [2.0, 3.0])


class LastState(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = torch.nn.GRU(6, 4, batch_first=True), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[1][-1])


class LastStep(paddle.nn.Layer):
    """The same, read from the sequence; `cut` gives the recurrent layer a part of the gradient only."""

    def __init__(self, cut: bool = False) -> None:
        super().__init__()
        self.cut = cut
        self.rnn, self.head = paddle.nn.GRU(6, 4), paddle.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        last = self.rnn(x)[0][:, -1]
        return self.head(0.5 * last + 0.5 * last.detach() if self.cut else last)


def test_last_state_may_be_read_from_the_sequence_but_its_gradient_may_not_be_cut() -> None:
    sequences = np.random.default_rng(1).normal(size=(2, 5, 6)).astype(np.float32)
    assert align_models(LastState(), LastStep(), (sequences,), loss=loss).passed
    assert not align_models(LastState(), LastStep(cut=True), (sequences,), loss=loss).passed
