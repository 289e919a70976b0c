"""Micro-batches from which the candidate does not go back, with the lines of both steps."""

from typing import Any

import numpy as np
import paddle
import torch

from reprod_log.alignment.models import align_models
from reprod_log.capture.eager import EAGER
from reprod_log.frameworks.side import Scope, Side
from reprod_log.messages import words
from reprod_log.recording import Key

DATA = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


def step_from(parts: int) -> Any:
    def step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
        (rows,) = inputs
        for part in range(2):
            loss = (model(rows[2 * part : 2 * part + 2]) ** 2).mean()
            if part < parts:
                (loss / 2).backward()
        optimizer.step()
        (optimizer.clear_grad if hasattr(optimizer, "clear_grad") else optimizer.zero_grad)()

    return step


def test_micro_batch_that_is_lost_is_named_and_a_correct_loop_passes() -> None:
    ours = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    theirs = paddle.nn.Sequential(paddle.nn.Linear(6, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 3))
    made = (
        lambda model: torch.optim.SGD(model.parameters(), 0.1),
        lambda model: paddle.optimizer.SGD(0.1, parameters=model.parameters()),
    )
    assert align_models(ours, theirs, DATA, step=(step_from(2), step_from(2)), optimizer=made, steps=1).passed
    alignment = align_models(ours, theirs, DATA, step=(step_from(2), step_from(1)), optimizer=made, steps=1)
    causes = [one for one in alignment.findings if one.kind == "cause"]
    assert [one.rule for one in causes] == ["cut_graph"]
    assert "of the 2 forward passes of a step, the candidate runs the backward pass for only 1" in str(causes[0].cause)


def test_gradients_that_are_put_in_leave_the_sum_over_backward_passes_as_it_is() -> None:
    model = torch.nn.Linear(6, 3)
    side = Side(model, optimizer=lambda made: torch.optim.SGD(made.parameters(), 0.1), step=step_from(2))
    others = {name: np.ones(tuple(one.shape), np.float32) for name, one in model.named_parameters()}
    runs = [EAGER.run(side, [((DATA,), None)], Scope(gradients=given)) for given in ({}, {0: others})]
    raw, moved = Key("weight", "gradient", 0, role="raw"), Key("weight", "update", 0)
    assert np.array_equal(runs[0][raw].array(), runs[1][raw].array())
    np.testing.assert_allclose(runs[1][moved].array(), -0.1, rtol=1e-5)


def test_cause_in_the_optimizer_has_the_lines_where_both_are_made() -> None:
    ours = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    theirs = paddle.nn.Sequential(paddle.nn.Linear(6, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 3))
    alignment = align_models(
        ours,
        theirs,
        DATA,
        loss=(lambda y: (y**2).mean(), lambda y: (y**2).mean()),
        optimizer=(
            lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
            lambda model: paddle.optimizer.SGD(0.1, parameters=model.parameters()),
        ),
        steps=2,
    )
    (cause,) = [one for one in alignment.findings if one.kind == "cause"]
    assert "momentum of the optimizer differs: 0.9 in the reference, 0 in the candidate" in str(cause.cause)
    assert words()(cause.evidence).count("test_lost_passes.py:") == 2
