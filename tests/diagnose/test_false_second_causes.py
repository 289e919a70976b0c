"""No second cause beside the right one, none that contradicts it, and none for what does not differ."""

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log import Alignment, Recording, align
from reprod_log.alignment.models import align_models
from reprod_log.diagnose.fits import nearness, scaled, shown_ratio
from reprod_log.messages import words

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(6, 5)).astype(np.float32)
LABELS = RNG.integers(0, 3, 6)


def causes(alignment: Alignment) -> list[tuple[str, str]]:
    return [(one.rule, str(one.cause)) for one in alignment.findings if one.kind == "cause"]


def trained(ours: Any, theirs: Any) -> list[tuple[str, str]]:
    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    for layer in (reference[0], reference[2]):
        torch.nn.init.zeros_(layer.bias)
    candidate = paddle.nn.Sequential(paddle.nn.Linear(5, 4), paddle.nn.Tanh(), paddle.nn.Linear(4, 3))
    return causes(
        align_models(
            reference,
            candidate,
            (DATA,),
            targets=LABELS,
            loss=(torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy),
            optimizer=(ours, theirs),
            steps=2,
            quick=True,
        )
    )


def test_other_momentum_is_no_decay_of_parameters_that_began_at_zero() -> None:
    ((_, cause),) = trained(
        lambda model: torch.optim.SGD(model.parameters(), 0.05, momentum=0.9),
        lambda model: paddle.optimizer.Momentum(0.05, momentum=0.8, parameters=model.parameters()),
    )
    assert "momentum of the optimizer differs: 0.9 in the reference, 0.8 in the candidate" in cause


def test_other_decay_on_both_sides_is_said_once() -> None:
    ((_, cause),) = trained(
        lambda model: torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01),
        lambda model: paddle.optimizer.AdamW(1e-3, weight_decay=0.1, parameters=model.parameters()),
    )
    assert "weight decay of the optimizer differs: 0.01 in the reference, 0.1 in the candidate" in cause


def test_decay_of_some_parameters_only_is_still_told_from_the_values() -> None:
    def only_weights(model: Any) -> Any:
        names = {one.name for one in model.parameters() if one.ndim > 1 and one.shape[0] == 5}
        return paddle.optimizer.AdamW(
            1e-3, weight_decay=0.1, parameters=model.parameters(), apply_decay_param_fun=lambda name: name in names
        )

    found = dict(trained(lambda model: torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1), only_weights))
    assert "weight decay is missing on 2.weight" in found["update_fit"]


def test_nan_that_both_inputs_hold_is_no_difference_of_the_data() -> None:
    found = align_models(torch.nn.Linear(5, 3), paddle.nn.Linear(5, 3), (DATA * np.nan,))
    assert not found.passed
    ((rule, cause),) = causes(found)
    assert rule == "not_finite"
    assert "step0/data/" in cause
    first = found.verdict.first_divergence
    assert first is not None
    assert "both sides were given NaN: 30 of 30" in str(first.reason)


def recorded(steps: int, run: str = "") -> Recording:
    values = np.random.default_rng(1).normal(size=(6, 4))
    return Recording.from_arrays({f"{run}step{step}/forward/layer#0:output": values[step] for step in range(steps)})


@pytest.mark.parametrize(("ours", "theirs"), [(6, 3), (1, 2)])
def test_other_number_of_steps_is_named(ours: int, theirs: int) -> None:
    found = align(recorded(ours), recorded(theirs))
    noun = "step" if ours == 1 else "steps"
    assert causes(found) == [("other_length", f"the reference has {ours} {noun}, the candidate {theirs}")]
    assert f"only the first {min(ours, theirs)}" in words()(found.findings[0].advice)


def test_missing_plain_pass_is_named_but_not_as_a_cause() -> None:
    found = align(recorded(2), recorded(2, "float64@"))
    assert causes(found) == []
    (remark,) = (one for one in found.findings if one.rule == "other_length")
    assert str(remark.cause) == "the candidate was recorded only in float64, not in its own precision"


def test_recordings_of_one_length_have_no_cause() -> None:
    assert causes(align(recorded(3), recorded(3))) == []


def test_ratio_near_one_is_shown_with_the_digits_that_tell() -> None:
    assert str(shown_ratio(1.000003)) == "1.000003"
    assert str(shown_ratio(0.5)) == "0.5"
    assert str(shown_ratio(0.9999999)) == "0.9999999"
    assert str(shown_ratio(1 / 3)) == "0.333333"


def test_difference_that_is_noise_is_no_factor() -> None:
    ours = np.random.default_rng(2).normal(size=100)
    noisy = ours * (1 + 1e-6 * np.random.default_rng(3).normal(size=100))
    assert scaled(ours, noisy, nearness(ours, noisy, "float64")) is None
    found = scaled(ours, ours * 1.000003, nearness(ours, ours * 1.000003, "float64"))
    assert found is not None
    assert float(found.arguments["ratio"].value) == pytest.approx(1.000003)
