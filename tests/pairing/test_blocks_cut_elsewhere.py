"""Blocks that are another piece of the model are left to the layers behind them, and only if there are such layers."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from reprod_log import Recording, Status, align, watch

Tail = Callable[[torch.Tensor], torch.Tensor]


class Block(torch.nn.Module):
    def __init__(self, tail: Tail) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.tail = tail

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tail(self.fc(x))


class Net(torch.nn.Module):
    def __init__(self, tails: Sequence[Tail], *, outside: Tail = torch.nn.Identity()) -> None:  # noqa: B008
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(tail) for tail in tails)
        self.outside = outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.outside(block(x))
        return x


def recorded(tails: Sequence[Tail], *, outside: Tail | None = None, **options: Any) -> Recording:
    torch.manual_seed(0)
    model = Net(tails) if outside is None else Net(tails, outside=outside)
    with watch(model, phases=["forward"], **options) as run:
        model(torch.linspace(-1, 1, 12).reshape(3, 4))
    return run.recording


def nothing(x: torch.Tensor) -> torch.Tensor:
    return x


def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_tail_outside_of_the_blocks_is_no_failure() -> None:
    found = align(recorded([doubled, doubled, doubled]), recorded([nothing, nothing, nothing], outside=doubled))
    assert found.passed
    assert not [one for one in found.findings if one.kind in ("cause", "hint")]


@pytest.mark.parametrize("wrong", [torch.tanh, lambda x: x.repeat(2, 1), lambda x: x[:, :2]])
@pytest.mark.parametrize("options", [{}, {"layers": ["blocks*"]}])
def test_wrong_end_of_the_last_block_fails_whatever_was_recorded(wrong: Tail, options: dict[str, Any]) -> None:
    found = align(recorded([doubled, doubled], **options), recorded([doubled, wrong], **options))
    assert found.status is Status.FAIL


def test_block_that_agrees_is_compared_although_another_of_its_class_does_not() -> None:
    found = align(recorded([doubled, doubled]), recorded([doubled, lambda x: x.repeat(2, 1)]))
    assert "step0/forward/blocks.0#0:output" in {row.key for row in found.comparison.rows}


def test_nothing_given_to_the_next_layer_proves_nothing() -> None:
    def empty(x: torch.Tensor) -> torch.Tensor:
        return x[:0]

    def doubled_empty(x: torch.Tensor) -> torch.Tensor:
        return 2 * x[:0]

    first = align(recorded([empty, nothing]), recorded([lambda x: torch.zeros(0, 7) @ torch.zeros(7, 4), nothing]))
    assert first.status is Status.PASS
    wide = align(recorded([nothing, empty]), recorded([lambda x: x + 1, doubled_empty]))
    assert wide.status is Status.FAIL


@pytest.mark.parametrize("detail", ["summary", "sketch", "full"])
def test_layers_of_other_names_are_matched_at_every_detail(detail: str) -> None:
    def named(*names: str) -> Recording:
        torch.manual_seed(0)
        model = torch.nn.Sequential()
        for name in names:
            model.add_module(name, torch.nn.Linear(4, 4))
        with watch(model, detail=detail) as run:
            model(torch.ones(2, 4))
        return run.recording

    found = align(named("a", "b", "c"), named("x", "y", "z"))
    assert found.passed
    assert ("step0/forward/b#0:output", "step0/forward/y#0:output") in {
        (row.key, row.candidate_key) for row in found.comparison.rows
    }
