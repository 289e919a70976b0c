"""Whole models written independently: every weight moves with no map, both ways, and the models then agree."""

import importlib
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn as pn

from models_pairs import NAMES
from reprod_log.pairing.survey import survey
from reprod_log.pairing.units import BARE
from reprod_log.transfer import transfer_weights


def outputs(in_torch: Any, in_paddle: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
    in_torch.eval()
    in_paddle.eval()
    with torch.no_grad():
        one = in_torch(**{name: torch.from_numpy(array) for name, array in inputs.items()}).numpy()
    with paddle.no_grad():
        other = in_paddle(**{name: paddle.to_tensor(array) for name, array in inputs.items()}).numpy()
    return one, other


@pytest.mark.parametrize("direction", ["torch to paddle", "paddle to torch"])
@pytest.mark.parametrize("name", NAMES)
def test_independent_models_agree_after_transfer_without_a_map(name: str, direction: str) -> None:
    pair = importlib.import_module(f"models_pairs.{name}")
    in_torch, in_paddle = pair.build_torch(), pair.build_paddle()
    source, target = (in_torch, in_paddle) if direction == "torch to paddle" else (in_paddle, in_torch)

    report = transfer_weights(source, target, inputs=pair.make_inputs(0))

    assert report.complete
    assert {row.verified for row in report.rows} == {"verified"}
    assert len({row.layer for row in report.rows if row.rule != BARE}) == pair.LAYER_COUNT
    one, other = outputs(in_torch, in_paddle, pair.make_inputs(1))
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_a_pair_do_not_help(name: str) -> None:
    # The pairs are worth something only as long as they cannot be matched by equal paths.
    pair = importlib.import_module(f"models_pairs.{name}")
    here = {unit.path for unit in survey(pair.build_torch()).units}
    there = {unit.path for unit in survey(pair.build_paddle()).units}
    assert not here & there
    assert len(here) == len(there)


@pytest.mark.parametrize("name", NAMES)
def test_independent_models_are_refused_or_right_without_inputs(name: str) -> None:
    pair = importlib.import_module(f"models_pairs.{name}")
    in_torch, in_paddle = pair.build_torch(), pair.build_paddle()
    proved = {
        row.target: row.source
        for row in transfer_weights(in_torch, in_paddle, inputs=pair.make_inputs(0), dry_run=True).rows
    }
    report = transfer_weights(in_torch, in_paddle, dry_run=True)
    for row in report.rows:
        assert row.source == proved[row.target]


def planted(name: str, model: Any) -> Any:
    """A mistake in how the layers are put together; no layer by itself computes anything wrong."""
    if name == "vit":
        model.trunk.layers[2].inner.num_heads = 2
    elif name == "bert":
        model.body.layers[1].self_attn.parts = 2
    elif name == "unet":
        model.body.below.merge.forward = lambda x: model.body.below.merge.norm_b(
            model.body.below.merge.conv_b(model.body.below.merge.norm_a(model.body.below.merge.conv_a(x)))
        )
    elif name == "resnet18":
        unit = model.units[3]
        unit.forward = lambda x: unit.shortcut(x) + unit.second(pn.functional.relu(unit.first(x)))
    else:
        model.decision.forward = lambda x: model.decision.last(model.decision.deep(model.decision.shallow(x)))
    return model


@pytest.mark.parametrize("name", NAMES)
def test_mistake_between_layers_does_not_lead_the_pairing_astray(name: str) -> None:
    pair = importlib.import_module(f"models_pairs.{name}")
    inputs = pair.make_inputs(0)
    right = transfer_weights(pair.build_torch(), pair.build_paddle(), inputs=inputs)
    report = transfer_weights(pair.build_torch(), planted(name, pair.build_paddle()), inputs=inputs)
    assert "the whole models differ from" in report.context
    assert {row.target: row.source for row in report.rows} == {row.target: row.source for row in right.rows}
    # Behind the mistake values may still tell which weights belong together; where order alone does, that is noted.
    assert all("by order alone" in row.note for row in report.rows if row.how == "execution order")
