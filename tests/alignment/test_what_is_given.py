"""What align_models is given: nothing of it may be of no use without a word."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch

from reprod_log import align_models
from reprod_log.errors import UsageError
from reprod_log.verdict import Status

X = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)


class Ours(torch.nn.Module):
    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)
        self.register_buffer("table", table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x * self.table)


class Theirs(paddle.nn.Layer):
    def __init__(self, table: paddle.Tensor) -> None:
        super().__init__()
        self.fc = paddle.nn.Linear(6, 6)
        self.register_buffer("table", table)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.fc(x * self.table.astype(x.dtype))


@pytest.mark.parametrize("kind", ["float32", "bool"])
@pytest.mark.parametrize("alike", [True, False])
def test_table_that_the_candidate_computes_differently_is_told_although_it_was_carried_over(
    kind: str, alike: bool
) -> None:
    table = np.arange(6.0)
    other = table * (1 + 1e-7) if alike else table[::-1].copy()
    if kind == "bool":
        table, other = table > 2, (table if alike else other) > 2
    reference = Ours(torch.tensor(table.astype(kind)))
    found = align_models(reference, Theirs(paddle.to_tensor(other.astype(kind))), (X,), quick=True)
    told = [one for one in found.findings if one.rule == "carried_tables"]
    assert found.passed if alike else found.status is Status.UNPROVEN
    assert bool(told) is not alike
    if told:
        assert told[0].kind == "doubt"
        assert "table" in str(told[0].cause)


def pair() -> tuple[torch.nn.Module, paddle.nn.Layer]:
    return Ours(torch.ones(6)), Theirs(paddle.ones([6]))


@pytest.mark.parametrize(
    "inputs",
    [X, [X, X], torch.tensor(X), (torch.tensor(X),), {"x": paddle.to_tensor(X)}],
    ids=["array", "arrays by step", "tensor", "tensors", "tensors by name"],
)
def test_inputs_may_be_arrays_and_tensors(inputs: object) -> None:
    found = align_models(*pair(), inputs, quick=True)
    assert found.passed
    given = [row for row in found.comparison.rows if row.key.phase == "data" and row.key.step == 0 and not row.key.run]
    assert [row.reference_shape for row in given] == [(3, 6)]


def test_targets_may_be_tensors() -> None:
    loss = torch.nn.functional.mse_loss, paddle.nn.functional.mse_loss
    found = align_models(*pair(), X, targets=torch.zeros(3, 6), loss=loss, quick=True)
    assert found.passed
    assert any(row.key.phase == "loss" for row in found.comparison.rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": lambda outputs: outputs * 2}, r"the loss of the torch side has the shape \[3, 6\]"),
        ({"loss": lambda outputs: float(outputs.sum())}, "the loss of the torch side gave a float"),
        ({"loss": lambda outputs: None}, "the loss of the torch side gave a NoneType"),
        ({"loss": "mse"}, "loss is a str; give a function"),
        ({"loss": lambda outputs: outputs.sum(), "optimizer": torch.optim.SGD([torch.ones(1)], 0.1)}, "is a SGD; give"),
        ({"inputs": None}, "inputs is None"),
    ],
    ids=["shape", "number", "nothing", "text", "optimizer", "no inputs"],
)
def test_what_cannot_be_used_is_refused_in_words(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        align_models(*pair(), **{"inputs": X, "quick": True, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["optimizer", "targets", "both"])
def test_optimizer_and_targets_without_a_loss_are_refused(given: str) -> None:
    pair = (
        lambda model: torch.optim.SGD(model.parameters(), 0.1),
        lambda model: paddle.optimizer.Adam(5.0, parameters=model.parameters()),
    )
    options = {"optimizer": pair, "targets": X}
    if given != "both":
        options = {given: options[given]}
    with pytest.raises(UsageError, match=f"{' and '.join(options)} given, but neither loss= nor step="):
        align_models(torch.nn.Linear(6, 6), paddle.nn.Linear(6, 6), (X,), **options)  # type: ignore[arg-type]


def test_losses_that_two_known_frameworks_round_alike_are_not_suspicious() -> None:
    def mse(outputs, targets):  # type: ignore[no-untyped-def]
        return ((outputs - targets) ** 2).mean()

    # Powers of two: every operation is exact on both sides.
    ours, theirs = torch.nn.Linear(2, 1), paddle.nn.Linear(2, 1)
    with torch.no_grad():
        ours.weight.fill_(0.5)
        ours.bias.fill_(0.25)
    pair = (
        lambda model: torch.optim.SGD(model.parameters(), 0.125),
        lambda model: paddle.optimizer.SGD(0.125, parameters=model.parameters()),
    )
    inputs = np.array([[1.0, 2.0], [0.5, 1.0]], np.float32)
    found = align_models(
        ours, theirs, (inputs,), targets=np.ones((2, 1), np.float32), loss=mse, optimizer=pair, steps=4, quick=True
    )
    assert found.passed
    assert not [one for one in found.findings if one.rule == "identical_losses"]
