"""The table of settings shows what differs between two optimizers, in words that both frameworks share."""

import numpy as np
import paddle
import pytest
import torch

from reprod_log import align, watch
from reprod_log.report.facts import Fact, provenance_facts


def facts_of(decay: float, beta: float = 0.9) -> dict[str, Fact]:
    """What a report shows of a torch run with AdamW and a paddle run with these settings."""
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    ours = torch.nn.Linear(3, 2)
    first = torch.optim.AdamW(ours.parameters(), lr=0.01, weight_decay=0.05)
    with watch(ours, optimizer=first) as reference:
        ours(torch.tensor(x)).sum().backward()
        first.step()
    theirs = paddle.nn.Linear(3, 2)
    second = paddle.optimizer.AdamW(0.01, beta1=beta, parameters=theirs.parameters(), weight_decay=decay)
    with watch(theirs, optimizer=second) as candidate:
        theirs(paddle.to_tensor(x)).sum().backward()
        second.step()
    found = provenance_facts(align(reference.recording, candidate.recording))
    return {fact.name: fact for fact in found if fact.name.startswith("optimizers")}


def test_equal_optimizers_are_one_line_without_a_difference() -> None:
    (fact,) = facts_of(0.05).values()
    assert not fact.differs
    assert fact.reference == "adamw"


@pytest.mark.parametrize(
    ("settings", "name", "values"),
    [((0.0,), "weight_decay", ("0.05", "0.0")), ((0.05, 0.8), "beta1", ("0.9", "0.8"))],
)
def test_setting_that_differs_is_shown_alone_and_matters(
    settings: tuple[float, ...], name: str, values: tuple[str, str]
) -> None:
    _, fact = facts_of(*settings).values()
    assert fact.name.endswith(f".{name}")
    assert (fact.reference, fact.candidate) == values
    assert fact.matters
