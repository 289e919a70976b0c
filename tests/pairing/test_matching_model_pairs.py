"""Models written independently for torch and paddle are lined up with no map: names, nesting and order all differ."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from reprod_log.capture import flatten, watch
from reprod_log.pairing import Pairing, match
from reprod_log.recording import Recording
from reprod_log.transfer import transfer_weights

PAIRS = ("resnet18", "vit", "bert", "lstm_classifier", "unet")


def recorded(model: Any, inputs: dict[str, np.ndarray], convert: Callable[[Any], Any], optimizer: Any) -> Recording:
    with watch(model, optimizer=optimizer) as run:
        outputs = model(**{name: convert(array) for name, array in inputs.items()})
        (next(tensor for _, tensor in flatten(outputs)) ** 2).mean().backward()
        optimizer.step()
    return run.recording


@pytest.fixture(scope="module")
def recordings() -> dict[str, tuple[Recording, Recording]]:
    found = {}
    for name in PAIRS:
        pair = import_module(f"models_pairs.{name}")
        ours, theirs, inputs = pair.build_torch(), pair.build_paddle(), pair.make_inputs(0)
        # paddle's recurrent layers have no backward pass in eval mode.
        for model in (ours, theirs):
            model.train() if name == "lstm_classifier" else model.eval()
        transfer_weights(ours, theirs, inputs=inputs)
        found[name] = (
            recorded(ours, inputs, torch.tensor, torch.optim.SGD(ours.parameters(), 0.01)),
            recorded(theirs, inputs, paddle.to_tensor, paddle.optimizer.SGD(0.01, parameters=theirs.parameters())),
        )
    return found


def paired(pairing: Pairing, phase: str) -> dict[str, str]:
    return {
        pair.reference.key.path: pair.candidate.key.path for pair in pairing.pairs if pair.reference.key.phase == phase
    }


@pytest.mark.parametrize("name", PAIRS)
def test_every_layer_with_parameters_finds_its_partner(
    recordings: dict[str, tuple[Recording, Recording]], name: str
) -> None:
    reference, candidate = recordings[name]
    pairing = match(reference, candidate)
    assert [note for note in pairing.notes if note.id == "note.pairing.unmatched_layers"] == []
    assert [str(entry.key) for entry in pairing.only_in_reference] == []
    assert [str(entry.key) for entry in pairing.only_in_candidate] == []


@pytest.mark.parametrize("name", PAIRS)
def test_partners_hold_the_same_numbers(recordings: dict[str, tuple[Recording, Recording]], name: str) -> None:
    reference, candidate = recordings[name]
    for pair in match(reference, candidate).pairs:
        if pair.reference.key.phase not in ("forward", "parameter"):
            continue
        ours, theirs = pair.reference.array(), pair.candidate.array()
        theirs = theirs if pair.view is None else pair.view.of(theirs)
        assert ours.shape == theirs.shape, pair.reference.key
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4, err_msg=str(pair.reference.key))


def test_square_weights_are_transposed_by_layer_type_and_said(
    recordings: dict[str, tuple[Recording, Recording]],
) -> None:
    pairing = match(*recordings["vit"])
    square = [
        pair for pair in pairing.pairs if pair.reference.key.phase == "gradient" and pair.reference.shape == (24, 24)
    ]
    assert square
    assert all(pair.view is not None and "transposed" in str(pair.view.reason) for pair in square)


def test_queries_and_keys_called_in_another_order_are_told_apart(
    recordings: dict[str, tuple[Recording, Recording]],
) -> None:
    partners = paired(match(*recordings["vit"]), "forward")
    for path, partner in partners.items():
        if path.endswith("wq"):
            assert "quer" in partner.rpartition(".")[2], (path, partner)


def test_every_pair_says_how_it_was_found(recordings: dict[str, tuple[Recording, Recording]]) -> None:
    pairing = match(*recordings["resnet18"])
    assert {pair.how for pair in pairing.pairs} <= {"name", "rename", "structure", "order", "value"}
    assert all(0 < pair.confidence <= 1 for pair in pairing.pairs)
    assert all((pair.confidence < 1) == (pair.how in ("structure", "order")) for pair in pairing.pairs)
    assert {"value", "structure"} <= {pair.how for pair in pairing.pairs}


def test_activation_that_only_one_side_has_as_a_module_is_structure(
    recordings: dict[str, tuple[Recording, Recording]],
) -> None:
    pairing = match(*recordings["resnet18"])
    assert pairing.structural
    assert all(entry.layer_type not in ("Conv2d", "Conv2D", "Linear") for entry in pairing.structural)


def test_missing_layer_with_parameters_is_named(recordings: dict[str, tuple[Recording, Recording]]) -> None:
    reference, candidate = recordings["bert"]
    gone = [module.path for module in candidate.modules if module.parameters][3]
    kept = tuple(module for module in candidate.modules if not module.path.startswith(gone))
    entries = tuple(entry for entry in candidate.entries if not entry.key.path.startswith(gone))
    without = Recording(entries, candidate.provenance, modules=kept)
    pairing = match(reference, without)
    assert pairing.only_in_reference
    assert any(note.id == "note.pairing.unmatched_layers" for note in pairing.notes)
