"""Weights that a program uses in parts only, and tables that wait for a checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch
from paddle import nn as pn
from torch import nn as tn

from reprod_log.frameworks.side import Side
from reprod_log.pairing.links import WeightMap
from reprod_log.pairing.live_map import find_weight_map

ROWS = np.random.default_rng(1).normal(size=(10, 8)).astype(np.float32)


def weight_map(reference: Any, candidate: Any) -> WeightMap:
    return find_weight_map(Side(reference), Side(candidate), (ROWS, None))


class Scaled(tn.Module):
    """Blocks with a scale each."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = tn.ModuleList(tn.Linear(8, 8) for _ in range(depth))
        self.scales = tn.ParameterList(tn.Parameter(0.1 * torch.ones(8)) for _ in range(depth))

    def forward(self, x: Any) -> Any:
        for layer, scale in zip(self.layers, self.scales, strict=True):
            x = x + scale * torch.tanh(layer(x))
        return x


class InOneMatrix(pn.Layer):
    def __init__(self, depth: int = 3, *, rows: int = 3) -> None:
        super().__init__()
        self.rows = rows
        self.table = self.create_parameter([rows, 8])
        self.layers = pn.LayerList(pn.Linear(8, 8) for _ in range(depth))

    def forward(self, x: Any) -> Any:
        for place, layer in enumerate(self.layers):
            # The last block comes first in the matrix.
            x = x + self.table[self.rows - 1 - place] * paddle.tanh(layer(x))
        return x


def test_a_matrix_whose_rows_are_used_far_from_each_other_is_found_row_by_row() -> None:
    reference = Scaled()
    found = weight_map(reference, InOneMatrix())
    assert found.agrees
    link = found.by_target["table"]
    assert link.sources == ("scales.2", "scales.1", "scales.0")
    values = [np.full(8, number) for number in (2.0, 1.0, 0.0)]
    assert np.array_equal(link.apply(values), np.stack(values))
    assert not found.left_in_candidate
    assert not found.left_in_reference


def test_a_matrix_of_which_a_row_is_never_used_stays_one_weight() -> None:
    found = weight_map(Scaled(1), InOneMatrix(1, rows=2))
    assert all("[" not in name for name in (*found.by_target, *found.unproven, *found.left_in_candidate))


class Frequencies(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("b", torch.randn(8, 6))
        self.leave = tn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.leave(torch.sin(x @ self.b))


class Waiting(pn.Layer):
    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("frequencies", paddle.to_tensor(table))
        self.out = pn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.out(paddle.sin(x @ self.frequencies))


def test_a_table_of_zeros_waits_for_the_reference_s() -> None:
    found = weight_map(Frequencies(), Waiting(np.zeros((8, 6), np.float32)))
    assert found.agrees
    assert found.by_target["frequencies"].sources == ("b",)


def test_a_table_with_values_of_its_own_may_be_what_is_wrong_and_stays() -> None:
    wrong = np.random.default_rng(5).normal(size=(8, 6)).astype(np.float32)
    found = weight_map(Frequencies(), Waiting(wrong))
    assert not found.agrees
    assert "frequencies" not in found.by_target
