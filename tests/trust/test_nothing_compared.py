"""Where nothing was compared nothing is explained, and what was not recorded is not reported."""

from __future__ import annotations

import numpy as np

from reprod_log import Recording, align
from reprod_log.verdict import Status


def training(**more: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    weight, gradient = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    return {
        "step0/parameter/fc.weight": weight,
        "step0/gradient/fc.weight:raw": gradient,
        "step0/update/fc.weight": -0.1 * gradient,
        **more,
    }


def test_nothing_compared_has_no_causes() -> None:
    ours = Recording.from_arrays({"step0/gradient/fc.weight:raw": np.ones(3)})
    theirs = Recording.from_arrays({"step0/forward/fc#0:output": np.ones(3)})
    found = align(ours, theirs)
    assert found.status is Status.NOTHING
    assert not [one for one in found.findings if one.kind == "cause"]


def test_pass_that_one_side_lacks_is_a_remark_where_nothing_was_compared() -> None:
    ours = Recording.from_arrays({"step0/forward/fc#0:output": np.ones(3)})
    theirs = Recording.from_arrays({"float64@step0/forward/fc#0:output": np.ones(3)})
    found = align(ours, theirs)
    assert found.status is Status.NOTHING
    assert [(one.rule, one.kind) for one in found.findings] == [("other_length", "remark")]


def test_graph_is_not_called_cut_where_no_output_was_compared() -> None:
    ours, theirs = training(), training()
    ours["step0/gradient/head.weight:raw"] = np.ones((2, 2))
    found = align(Recording.from_arrays(ours), Recording.from_arrays(theirs))
    assert found.status is Status.FAIL
    assert "cut_graph" not in [one.rule for one in found.findings]
    with_output = {"step0/forward/fc#0:output": np.arange(6.0)}
    found = align(Recording.from_arrays({**ours, **with_output}), Recording.from_arrays({**theirs, **with_output}))
    assert "cut_graph" in [one.rule for one in found.findings]


def test_learning_rate_that_was_not_recorded_is_not_zero() -> None:
    """An optimizer that keeps a multiple of the weight more, as a weight decay does."""
    kept = {"step0/optimizer/fc.weight:exp_avg": training()["step0/gradient/fc.weight:raw"]}
    ours = training(**kept)
    # What is recorded of a parameter is its value after the update.
    weight = ours["step0/parameter/fc.weight"] - ours["step0/update/fc.weight"]
    theirs = {**ours, "step0/optimizer/fc.weight:exp_avg": kept["step0/optimizer/fc.weight:exp_avg"] + 0.01 * weight}
    theirs["step0/update/fc.weight"] = ours["step0/update/fc.weight"] * np.linspace(1.0, 1.5, 3)
    for known in ({}, {"step0/lr/optimizer:group0": np.array(0.1)}):
        found = align(Recording.from_arrays({**ours, **known}), Recording.from_arrays({**theirs, **known}))
        assert not [one for one in found.findings if "the learning rate is 0" in one.text()]
