"""Several independent mistakes in one port are all named, each at its place; one mistake has one cause."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from reprod_log import Alignment
from reprod_log.alignment.models import align_models

GENERATOR = np.random.default_rng(0)
INPUTS = [(GENERATOR.normal(size=(8, 6)).astype(np.float32),) for _ in range(3)]
TARGETS = [GENERATOR.normal(size=(8, 3)).astype(np.float32) for _ in range(3)]


class Net(torch.nn.Module):
    def __init__(self, eps: float = 1e-5, slope: float = 0.1, scale: float = 1.0) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(6, 7), torch.nn.LayerNorm(7, eps=eps)
        self.act = torch.nn.LeakyReLU(slope)
        self.middle, self.last = torch.nn.Linear(7, 7), torch.nn.Linear(7, 3)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.norm(self.first(x)))
        return self.last(torch.tanh(self.middle(y)) * self.scale)


def sgd(**settings: Any) -> Any:
    return lambda model: torch.optim.SGD(model.parameters(), lr=0.1, **{"momentum": 0.9, **settings})


def aligned(candidate: Net, *, loss: Any = functional.mse_loss, optimizer: Any = None) -> Alignment:
    torch.manual_seed(0)
    return align_models(
        Net(),
        candidate,
        INPUTS,
        targets=TARGETS,
        loss=(functional.mse_loss, loss),
        optimizer=(sgd(), optimizer or sgd()),
    )


def causes(alignment: Alignment) -> list[str]:
    return sorted(str(one.cause) for one in alignment.findings if one.kind == "cause")


def remarks(alignment: Alignment) -> list[str]:
    return [str(one.cause) for one in alignment.findings if one.rule == "explained"]


def test_mistakes_in_two_layers_the_loss_and_the_optimizer_are_all_named() -> None:
    found = aligned(
        Net(eps=1e-2, slope=0.3),
        loss=lambda outputs, targets: functional.mse_loss(outputs, targets, reduction="sum"),
        optimizer=sgd(momentum=0.5),
    )
    named = causes(found)
    assert [
        name for name in ("eps of norm", "negative_slope of act", "24 times", "momentum") if name in str(named)
    ] == [
        "eps of norm",
        "negative_slope of act",
        "24 times",
        "momentum",
    ]
    assert len(named) == 4
    (told,) = remarks(found)
    assert told == f"4 causes explain all {len(found.case.failed)} entries that fail"


@pytest.mark.usefixtures("weights_by_name")
def test_code_between_layers_behind_a_wrong_layer_is_named() -> None:
    named = causes(aligned(Net(eps=1e-2, scale=0.5)))
    assert any("eps of norm" in one for one in named)
    assert any("0.5 times" in one or "__mul__" in one or "mul in" in one for one in named)


@pytest.mark.usefixtures("weights_by_name")
@pytest.mark.parametrize(
    ("candidate", "more", "expected"),
    [
        (Net(eps=1e-2), {}, "eps of norm"),
        (Net(slope=0.3), {}, "negative_slope of act"),
        (Net(), {"optimizer": sgd(momentum=0.5)}, "momentum"),
        (Net(), {"optimizer": sgd(weight_decay=0.1)}, "decay"),
        (Net(), {"loss": lambda outputs, targets: 2 * functional.mse_loss(outputs, targets)}, "2 times"),
    ],
)
def test_one_mistake_has_one_cause(candidate: Net, more: dict[str, Any], expected: str) -> None:
    found = aligned(candidate, **more)
    (cause,) = causes(found)
    assert expected in cause
    assert remarks(found) == []


class Twice(torch.nn.Module):
    """One activation behind two layers."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 7), torch.nn.Linear(7, 3)
        self.act = torch.nn.LeakyReLU(slope)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.last(self.act(self.first(x))))


def test_layer_that_is_called_twice_explains_what_lies_between_its_calls() -> None:
    torch.manual_seed(0)
    found = align_models(Twice(0.1), Twice(0.3), INPUTS, targets=TARGETS, loss=functional.mse_loss, optimizer=sgd())
    (cause,) = causes(found)
    assert "negative_slope of act" in cause
    assert remarks(found) == []


def test_correct_port_is_not_run_again() -> None:
    found = aligned(Net())
    assert found.passed
    assert causes(found) == remarks(found) == []


class Packed(torch.nn.Module):
    """Queries, keys and values in one layer, or in three; the keys are scaled where they should not be."""

    def __init__(self, *, packed: bool, scale: float = 1.0) -> None:
        super().__init__()
        self.take = torch.nn.Linear(6, 18) if packed else torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(3))
        self.last, self.scale = torch.nn.Linear(6, 3), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = isinstance(self.take, torch.nn.Linear)
        q, k, v = self.take(x).chunk(3, -1) if one else (layer(x) for layer in self.take)
        return self.last(torch.softmax(q @ (k * self.scale).T, -1) @ v)


def test_mistake_beside_weights_that_are_parts_of_one_is_looked_at_again() -> None:
    torch.manual_seed(0)
    found = align_models(
        Packed(packed=False),
        Packed(packed=True, scale=1.5),
        INPUTS,
        targets=TARGETS,
        loss=functional.mse_loss,
        optimizer=sgd(),
    )
    assert not found.passed
    assert found.first_divergence is not None
    assert "last" in str(found.first_divergence.key)
