"""The weight map by values: found without names, in other formulations, and not found for a wrong port."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn as pn
from torch import nn as tn

from reprod_log import align_models
from reprod_log.capture.eager import EAGER
from reprod_log.frameworks.side import Scope, Side
from reprod_log.pairing.anchors import Index, is_informative, same_numbers, view_of
from reprod_log.pairing.links import Link, Recipe, WeightMap, single_recipes
from reprod_log.pairing.live_map import find_weight_map
from reprod_log.verdict import Status

X = np.random.default_rng(0).normal(size=(3, 5, 6)).astype(np.float32)


class Attention(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (tn.Linear(6, 6) for _ in range(4))

    def forward(self, x: Any) -> Any:
        return self.o(torch.softmax(self.q(x) @ self.k(x).transpose(1, 2), -1) @ self.v(x))


class Packed(pn.Layer):
    """All three in one layer, in another order, under names that say nothing."""

    def __init__(self, *, wrong: bool = False) -> None:
        super().__init__()
        self.b, self.a, self.wrong = pn.Linear(6, 6), pn.Linear(6, 18), wrong

    def forward(self, x: Any) -> Any:
        v, q, k = self.a(x).split(3, axis=-1)
        scores = q @ k.transpose([0, 2, 1])
        return self.b(paddle.nn.functional.softmax(scores * 2 if self.wrong else scores) @ v)


class Crossed(pn.Layer):
    """Keys are computed by the layer that is called values."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (pn.Linear(6, 6) for _ in range(4))

    def forward(self, x: Any) -> Any:
        scores = paddle.nn.functional.softmax(self.query(x) @ self.value(x).transpose([0, 2, 1]))
        return self.out(scores @ self.key(x))


def found(candidate: Any) -> WeightMap:
    return find_weight_map(Side(Attention()), Side(candidate), ((X,), None))


def test_packed_weights_are_found_in_their_order() -> None:
    weights = found(Packed())
    assert weights.agrees
    assert weights.by_target["a.weight"].sources == ("v.weight", "q.weight", "k.weight")
    assert weights.by_target["a.bias"].sources == ("v.bias", "q.bias", "k.bias")


def test_no_map_agrees_when_the_port_is_wrong() -> None:
    assert not found(Packed(wrong=True)).agrees


def test_crossed_names_make_the_alignment_unproven_and_stand_first() -> None:
    alignment = align_models(Attention(), Crossed(), (X,))
    assert alignment.status is Status.UNPROVEN
    assert alignment.findings[0].rule == "crossed_names"
    assert alignment.weight_map is not None
    assert alignment.weight_map.by_target["value.weight"].sources == ("k.weight",)
    assert "k → value" in str(alignment.findings[0].cause).replace("'", "")


@pytest.mark.parametrize("make", [Attention, Packed])
def test_kernels_give_the_same_again_and_leave_what_they_are_given(make: Any) -> None:
    program = EAGER.program(Side(make()), ((X,), None), Scope(dtype="float64"))
    assert program.kernels
    assert all(array.dtype != np.float32 for array in program.arrays)
    for place, kernel in enumerate(program.kernels):
        given = {number: program.tensor(program.arrays[number]) for number in kernel.inputs}
        for number, tensor in zip(kernel.outputs, program.again(place, given), strict=True):
            assert same_numbers(program.array(tensor), program.arrays[number], 1e-13)
        assert all(np.array_equal(program.array(given[number]), program.arrays[number]) for number in kernel.inputs)


def test_views_are_strict() -> None:
    array = np.random.default_rng(1).normal(size=(2, 3, 4))
    assert view_of(array, array) == ()
    assert view_of(array, array.reshape(6, 4)) == (-1,)
    assert view_of(array, array.transpose(2, 0, 1)) == (1, 2, 0)
    assert view_of(array, np.roll(array, 1, 1)) is None
    assert not is_informative(np.zeros(20))
    assert not is_informative(np.eye(4))
    assert [one.number for one in Index({7: array}).find(array[None])] == [7]
    assert Index({7: array}).find(np.flip(array, 1)) == ()


def test_fill_of_a_mask_does_not_set_the_scale() -> None:
    scores = np.random.default_rng(2).normal(size=50)
    scores[::5] = -1e9
    assert not same_numbers(scores, np.where(scores < -1e8, scores, scores + 0.1))
    assert same_numbers(scores, scores * (1 + 1e-12))


def test_gradients_go_back_through_a_map_as_sums_over_all_uses() -> None:
    shape = (6, 2)
    parts = [
        Link(name, (3, 2), ("w",), (shape,), Recipe(part=(0, index, 2))) for index, name in enumerate(("one", "two"))
    ]
    tied = Link("again", (2, 6), ("w",), (shape,), Recipe(axes=(1, 0)))
    values = np.arange(12.0).reshape(shape)
    arrays = {"one": values[:3], "two": values[3:], "again": values.T}
    weights = WeightMap((*parts, tied))
    assert np.array_equal(weights.back("w", shape, arrays, add=True), 2 * values)
    assert np.array_equal(weights.back("w", shape, arrays, add=False), values)
    assert WeightMap((parts[0],)).back("w", shape, arrays, add=True) is None


def test_height_and_width_of_a_kernel_are_never_exchanged() -> None:
    axes = [one.axes for one in single_recipes((4, 4, 3, 3), (4, 4, 3, 3))]
    assert (1, 0, 2, 3) in axes
    assert (0, 1, 3, 2) not in axes
