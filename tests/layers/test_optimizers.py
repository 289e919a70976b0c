"""The table of optimizers held against the installed frameworks: steps from equal gradients, state, settings."""

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log.frameworks.paddle import FRAMEWORK as PADDLE
from reprod_log.frameworks.torch import FRAMEWORK as TORCH
from reprod_log.layers.lookup import register
from reprod_log.layers.optimizers import (
    OPTIMIZERS,
    OptimizerColumn,
    OptimizerKind,
    Slot,
    find_optimizer,
    group_settings,
    hyperparameters,
    is_decoupled,
    optimizer_kind,
)
from reprod_log.layers.rows import Setting

PACKAGES = {"torch": torch.optim, "paddle": paddle.optimizer}
OF_OTHER_PACKAGES = {"Lamb", "FusedLAMB", "Lion", "SGDW", "Muon"}
"""Muon came with torch 2.9."""
RATE = 0.05


def test_no_class_and_no_kind_has_two_rows() -> None:
    claimed = [(name, one) for row in OPTIMIZERS for name, column in row.columns.items() for one in column.classes]
    assert len(claimed) == len(set(claimed))
    assert len({row.kind for row in OPTIMIZERS}) == len(OPTIMIZERS)


def test_every_class_of_the_table_exists() -> None:
    missing = {
        one
        for row in OPTIMIZERS
        for name, column in row.columns.items()
        for one in column.classes
        if not hasattr(PACKAGES[name], one)
    }
    assert missing <= OF_OTHER_PACKAGES


# Both sides of each kind with one set of values, written by hand and not from the table.
PAIRS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sgd": (
        lambda p: torch.optim.SGD(p, RATE, momentum=0.8, nesterov=True),
        lambda p: paddle.optimizer.Momentum(RATE, 0.8, parameters=p, use_nesterov=True),
    ),
    "adam": (
        lambda p: torch.optim.Adam(p, RATE, betas=(0.8, 0.95), eps=1e-3),
        lambda p: paddle.optimizer.Adam(RATE, beta1=0.8, beta2=0.95, epsilon=1e-3, parameters=p),
    ),
    "adamw": (
        lambda p: torch.optim.AdamW(p, RATE, weight_decay=0.3),
        lambda p: paddle.optimizer.AdamW(RATE, weight_decay=0.3, parameters=p),
    ),
    "adamax": (
        lambda p: torch.optim.Adamax(p, RATE),
        lambda p: paddle.optimizer.Adamax(RATE, parameters=p),
    ),
    "nadam": (
        lambda p: torch.optim.NAdam(p, RATE, momentum_decay=0.01),
        lambda p: paddle.optimizer.NAdam(RATE, momentum_decay=0.01, parameters=p),
    ),
    "radam": (
        lambda p: torch.optim.RAdam(p, RATE),
        lambda p: paddle.optimizer.RAdam(RATE, parameters=p),
    ),
    "adagrad": (
        lambda p: torch.optim.Adagrad(p, RATE, eps=1e-3, initial_accumulator_value=0.2),
        lambda p: paddle.optimizer.Adagrad(RATE, epsilon=1e-3, initial_accumulator_value=0.2, parameters=p),
    ),
    "rmsprop": (
        lambda p: torch.optim.RMSprop(p, RATE, alpha=0.9, eps=0.1, momentum=0.5, centered=True),
        lambda p: paddle.optimizer.RMSProp(RATE, rho=0.9, epsilon=0.1, momentum=0.5, centered=True, parameters=p),
    ),
    "adadelta": (
        lambda p: torch.optim.Adadelta(p, RATE, rho=0.9, eps=1e-3),
        lambda p: paddle.optimizer.Adadelta(RATE, rho=0.9, epsilon=1e-3, parameters=p),
    ),
    "rprop": (
        lambda p: torch.optim.Rprop(p, RATE, etas=(0.5, 1.2), step_sizes=(1e-5, 50)),
        lambda p: paddle.optimizer.Rprop(RATE, learning_rate_range=(1e-5, 50), etas=(0.5, 1.2), parameters=p),
    ),
}
ROWS = [row for row in OPTIMIZERS if row.kind in PAIRS]
START, GRADIENTS = (np.random.default_rng(3).standard_normal((n, 2, 3)).astype(np.float32) for n in (1, 3))


def sides(kind: str) -> tuple[Any, Any, Any, Any]:
    """The two optimizers after three steps from the same start with the same gradients, and their parameters."""
    ours = torch.nn.Parameter(torch.from_numpy(START[0].copy()))
    theirs = paddle.create_parameter(
        [2, 3], "float32", default_initializer=paddle.nn.initializer.Assign(START[0].copy())
    )
    one, other = PAIRS[kind][0]([ours]), PAIRS[kind][1]([theirs])
    for gradient in GRADIENTS:
        ours.grad, theirs.grad = torch.from_numpy(gradient.copy()), paddle.to_tensor(gradient)
        one.step()
        other.step()
    return one, ours, other, theirs


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_three_steps_agree_unless_epsilon_stands_elsewhere(row: OptimizerKind) -> None:
    _, ours, _, theirs = sides(row.kind)
    off = np.abs(ours.detach().numpy() - theirs.numpy()).max()
    # paddle's RMSProp adds epsilon under the root, torch's to it.
    assert (off < 2e-6) == (row.kind != "rmsprop"), off


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_slots_hold_the_same_under_their_canonical_names(row: OptimizerKind) -> None:
    one, ours, other, theirs = sides(row.kind)
    here = {name: value.numpy() for name, value, _ in TORCH.eager.recorded_state(one, ours)}
    there = {name: (value.numpy(), about) for name, value, about in PADDLE.eager.recorded_state(other, theirs)}
    assert there.keys() == here.keys() == {name for name in row.columns["torch"].slots if name != "max_exp_avg_sq"}
    for name, array in here.items():
        # The places of RMSprop's epsilon change what follows from it.
        if row.kind != "rmsprop" or name == "square_avg":
            np.testing.assert_allclose(there[name][0], array, rtol=1e-5, atol=1e-7, err_msg=name)
    steps = {about.get("optimizer_step") for _, about in there.values()}
    assert steps == ({3} if row.columns["paddle"].counter.powers else {None})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_equal_settings_are_equal_in_shared_words(row: OptimizerKind) -> None:
    one, _, other, _ = sides(row.kind)
    settings = TORCH.eager.describe(one), PADDLE.eager.describe(other)
    assert {optimizer_kind(side) for side in settings} == {row.kind}
    (here,), (there,) = (group_settings(side) for side in settings)
    assert here == pytest.approx(there)
    assert set(here) <= set(row.compared)
    left, right = (hyperparameters(side) for side in settings)
    assert {name: float(one) for name, one in left.items()} == pytest.approx(
        {name: float(one) for name, one in right.items()}
    )


@pytest.mark.parametrize(
    ("row", "word"),
    [(row, word) for row in OPTIMIZERS for word in row.compared],
    ids=lambda one: one if isinstance(one, str) else one.kind,
)
def test_compared_setting_changed_on_one_side_differs(row: OptimizerKind, word: str) -> None:
    for column in row.columns.values():
        setting = column.settings.get(word, Setting(word))
        values = [
            group_settings({"type": column.classes[0], "groups": [{setting.native: _native(setting, value)}]})[0][word]
            for value in (0.25, 0.5)
        ]
        assert values == [0.25, 0.5]


def _native(setting: Setting, value: float) -> Any:
    return {"first": [value, 0.1], "second": [0.1, value]}.get(setting.convert, value)


def test_decay_is_decoupled_by_flag_by_row_and_by_name() -> None:
    assert is_decoupled("torch", ["AdamW", "Adam", "Optimizer"], {"decoupled_weight_decay": True})
    assert is_decoupled("torch", ["AdamW", "Adam", "Optimizer"], {})
    assert is_decoupled("torch", ["Adam", "Optimizer"], {"decoupled_weight_decay": True})
    assert not is_decoupled("torch", ["Adam", "Optimizer"], {"decoupled_weight_decay": False})
    assert is_decoupled("torch", ["FusedAdamW8bit", "Optimizer"], {})
    assert not is_decoupled("torch", ["Sophia", "Optimizer"], {})


def test_framework_from_outside_brings_its_optimizers() -> None:
    register("toy_optim", {}, {"sgd": OptimizerColumn(("Descent",), {"momentum_buffer": Slot("speed", "momentum")})})
    row = find_optimizer("toy_optim", ["Mine", "Descent"])
    assert row is not None
    assert row.kind == optimizer_kind({"type": "Descent"}) == "sgd"
