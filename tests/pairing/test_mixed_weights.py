"""The weight map where a tensor mixes several weights, takes rows of one, or has parts of the other side's tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn as pn
from torch import nn as tn

from reprod_log import align_models
from reprod_log.frameworks.side import Side
from reprod_log.pairing.anchors import seen, view_of
from reprod_log.pairing.links import Recipe, WeightMap, link_of_places
from reprod_log.pairing.live_map import find_weight_map

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.normal(size=(3, 5, 6)).astype(np.float32)
FIELDS = RANDOM.integers(0, 4, (12, 3))


def weight_map(ours: Any, theirs: Any, batch: np.ndarray) -> WeightMap:
    return find_weight_map(Side(ours), Side(theirs), ((batch,), None))


class Similarity(tn.Module):
    """One layer on two inputs and their product."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.score = tn.Linear(18, 1)

    def forward(self, x: Any) -> Any:
        one, other = torch.broadcast_tensors(x[:, :, None], x[:, None, :3])
        return torch.tanh(self.score(torch.cat([one, other, one * other], -1))).squeeze(-1)


class Summed(pn.Layer):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor
        self.both, self.right, self.left = (self.create_parameter([6]) for _ in range(3))
        self.bias = self.create_parameter([1], is_bias=True)

    def forward(self, x: Any) -> Any:
        scores = paddle.matmul(x * self.both, x[:, :3], transpose_y=True) * self.factor
        return paddle.tanh(scores + (x @ self.left).unsqueeze(2) + (x[:, :3] @ self.right).unsqueeze(1) + self.bias)


class Fields(tn.Module):
    """One table for all fields, of which the batch reads a part of the rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.out = tn.Embedding(16, 4), tn.Linear(12, 2)

    def forward(self, fields: Any) -> Any:
        return self.out(self.table(fields + torch.tensor([0, 5, 12])).flatten(1))


class Tables(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.out = pn.Linear(12, 2)
        self.tables = pn.LayerList([pn.Embedding(rows, 4) for rows in (5, 7, 4)])

    def forward(self, fields: Any) -> Any:
        return self.out(paddle.concat([table(fields[:, at]) for at, table in enumerate(self.tables)], -1))


class Experts(tn.Module):
    """Gated layers one after the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.experts, self.out = tn.ModuleList([tn.Linear(6, 8) for _ in range(3)]), tn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        parts = [nn(x[:, at]) for at, nn in enumerate(self.experts)]
        return self.out(sum((at + 1) * torch.nn.functional.glu(part) for at, part in enumerate(parts)))


class Stacked(pn.Layer):
    """All of them in one contraction, values and gates apart."""

    def __init__(self) -> None:
        super().__init__()
        self.out = pn.Linear(4, 2)
        self.gate, self.value = self.create_parameter([3, 6, 4]), self.create_parameter([3, 6, 4])
        self.gate_bias, self.value_bias = self.create_parameter([3, 1, 4]), self.create_parameter([3, 1, 4])

    def forward(self, x: Any) -> Any:
        each = x[:, :3].transpose([1, 0, 2])
        value = paddle.bmm(each, self.value) + self.value_bias
        gated = value * paddle.nn.functional.sigmoid(paddle.bmm(each, self.gate) + self.gate_bias)
        return self.out((gated * paddle.to_tensor([1.0, 2.0, 3.0], dtype=x.dtype).reshape([3, 1, 1])).sum(0))


class Gated(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gates, self.out = tn.Linear(6, 12), tn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        a, b, c = self.gates(x).chunk(3, -1)
        return self.out(torch.sigmoid(a) * torch.tanh(b) + torch.relu(c))


class Reordered(pn.Layer):
    """The gates lie in one layer in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.out = pn.Linear(6, 12), pn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        c, a, b = self.gates(x).split(3, -1)
        return self.out(paddle.nn.functional.sigmoid(a) * paddle.tanh(b) + paddle.nn.functional.relu(c))


class Kept(pn.Layer):
    """What a table gives is kept and used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.other = pn.Embedding(4, 4), pn.Embedding(4, 4)

    def forward(self, fields: Any) -> Any:
        kept = self.table(fields)
        return paddle.tanh(kept).sum(1) + (kept * self.other(fields)).sum(1)


class Anew(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.other = tn.Embedding(4, 4), tn.Embedding(4, 4)

    def forward(self, fields: Any) -> Any:
        return torch.tanh(self.table(fields)).sum(1) + (self.table(fields) * self.other(fields)).sum(1)


@pytest.mark.parametrize(
    ("ours", "theirs", "batch"),
    [
        (Similarity, Summed, TOKENS),
        (Fields, Tables, FIELDS),
        (Experts, Stacked, TOKENS),
        (Gated, Reordered, TOKENS),
    ],
    ids=["a sum", "rows", "parts of both", "gates"],
)
def test_weights_are_found_when_they_are_mixed(ours: Any, theirs: Any, batch: np.ndarray) -> None:
    found = weight_map(ours(), theirs(), batch)
    assert found.agrees
    assert not found.left_in_candidate


def test_no_weights_fit_when_a_factor_is_wrong() -> None:
    assert not weight_map(Similarity(), Summed(2.0), TOKENS).agrees


def test_rows_of_a_table_are_told_where_the_batch_reads_only_some() -> None:
    found = weight_map(Fields(), Tables(), FIELDS)
    assert found.by_target["tables.1.weight"].recipe == Recipe(span=(0, 5, 12))
    rows = np.array([[-1, -1], [6, 7], [-1, -1]])
    link = link_of_places("b", (3, 2), ["a"], [(8, 2)], rows)
    assert link is not None
    assert link.recipe == Recipe(span=(0, 2, 5))


def test_what_is_computed_for_every_use_is_a_way_of_writing() -> None:
    square = lambda out, target: (out**2).mean()  # noqa: E731
    assert align_models(Anew(), Kept(), (FIELDS,), targets=FIELDS, loss=(square, square)).passed


def test_axes_are_told_by_values_when_several_are_one() -> None:
    windows = RANDOM.normal(size=(2, 2, 2, 2, 2, 2, 4))
    rows = windows.transpose(0, 1, 3, 5, 2, 4, 6).reshape(8, 2, 4, 4)
    axes = view_of(rows, windows)
    assert axes is not None
    assert np.array_equal(seen(windows, axes, rows.shape), rows)
    assert view_of(rows[::-1], windows) is None


NUMBERS = np.arange(24)
SQUARE = np.arange(16).reshape(4, 4)


@pytest.mark.parametrize(
    ("shapes", "shape", "places", "permuted", "turned"),
    [
        # A table of (places, heads) read as (heads, rows, columns), and with rows and columns exchanged.
        (((9, 2),), (2, 3, 3), np.arange(18).reshape(3, 3, 2).transpose(2, 1, 0), True, False),
        # Rows of a square matrix and a vector behind each other, as they are and turned: both are taken for the other.
        (((4, 4), (4,)), (5, 4), np.concatenate([SQUARE, NUMBERS[None, 16:20]]), False, False),
        (((4, 4), (4,)), (5, 4), np.concatenate([SQUARE.T, NUMBERS[None, 16:20]]), False, True),
        (((4, 4), (4,)), (5, 4), np.concatenate([SQUARE[[1, 0, 2, 3]], NUMBERS[None, 16:20]]), True, False),
    ],
)
def test_an_order_that_no_layout_asks_for_is_told(
    shapes: Any, shape: Any, places: np.ndarray, permuted: bool, turned: bool
) -> None:
    sources = [f"weight{number}" for number in range(len(shapes))]
    link = replace(
        link_of_places("target", shape, sources, shapes, places),
        recipe=Recipe(order=tuple(places.reshape(-1).tolist())),
    )
    assert (link.is_permuted, link.is_turned) == (permuted, turned)
