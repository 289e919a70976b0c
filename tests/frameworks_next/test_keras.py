"""Keras 3: right ports are aligned with gradients and updates on every backend, wrong ones are found and placed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import keras
import keras_models as ports
import numpy as np
import pytest
import torch
import torch_models as models

from reprod_log import Status, align_models, transfer_weights
from reprod_log.errors import UsageError

KINDS = list(models.INPUTS)


def port_of(kind, **settings):
    port = getattr(ports, kind.__name__)(**settings)
    if not port.built:
        port(models.batch_for(kind).numpy())
    return port


def trained(kind, optimizers, steps=2, **settings):
    """Both models on one batch with a loss and updates."""
    model, batch = models.made(kind), models.batch_for(kind)
    with torch.no_grad():
        targets = np.random.default_rng(0).normal(size=tuple(model(batch).shape)).astype(np.float32)
    return align_models(
        model,
        port_of(kind, **settings),
        batch,
        targets=targets,
        loss=lambda outputs, targets: ((outputs - targets) ** 2).mean(),
        optimizer=optimizers,
        steps=steps,
    )


SGD = (lambda model: torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), lambda _: keras.optimizers.SGD(0.05, 0.9))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_right_port_is_aligned_with_gradients_and_updates(kind):
    found = trained(kind, SGD)
    assert found.status is Status.PASS, str(found)
    assert [one for one in found.findings if one.kind == "cause"] == []
    phases = {one.key.phase for one in found.verdict.judgements}
    assert phases >= {"data", "forward", "loss", "backward", "gradient", "lr", "update", "parameter", "optimizer"}
    assert {one.key.run.partition(".")[0] for one in found.verdict.judgements} >= {"", "isolated", "injected"}


def test_right_port_with_channels_last_is_aligned_without_a_loss():
    found = align_models(models.made(models.ConvNet), port_of(models.ConvNet), models.batch_for(models.ConvNet))
    assert found.status is Status.PASS, str(found)
    # Without a loss only the whole model alone has a gradient of its input.
    assert any(one.key.phase == "backward" and not one.key.path for one in found.verdict.judgements)


MISTAKES = [
    (models.Mlp, {"eps": 1e-3}, ("norm",)),
    (models.Mlp, {"eps": 1e-6}, ("norm",)),
    (models.Mlp, {"approximate": True}, ("act", "leave", "")),
    (models.ConvNet, {"eps": 1e-3}, ("bn1",)),
    (models.ConvNet, {"padding": "same"}, ("conv1",)),
    (models.ConvNet, {"counted": False}, ("pool", "fc", "")),
    (models.ConvNet, {"rows": False}, ("pool", "fc", "")),
    (models.ConvNet, {"slope": 0.1}, ("relu", "conv2")),
    (models.Stack, {"slope": 0.3}, ("blocks.1.act", "blocks.1.conv2")),
    (models.Stack, {"scale": 0.5}, ("blocks.1.act", "blocks.1", "")),
    (models.Block, {"scaled": False}, ("attn.out", "attn")),
    (models.Block, {"eps": 1e-3}, ("norm2",)),
    (models.Block, {"activation": "relu"}, ("act", "down")),
    (models.Language, {"doubled": True}, ("block", "block.norm1")),
    (models.Decoder, {"groups": 4}, ("norm",)),
    (models.Decoder, {"method": "nearest"}, ("up", "back")),
]


@pytest.mark.parametrize(("kind", "setting", "places"), MISTAKES, ids=lambda one: getattr(one, "__name__", str(one)))
def test_wrong_port_is_placed(kind, setting, places):
    found = align_models(models.made(kind), port_of(kind, **setting), models.batch_for(kind))
    assert found.status is Status.FAIL, str(found)
    assert found.verdict.first_divergence.key.path in places, str(found)


@pytest.mark.parametrize(
    ("kind", "setting", "word"),
    [(models.Mlp, {"eps": 1e-3}, "eps"), (models.Stack, {"slope": 0.3}, "negative_slope")],
    ids=["epsilon", "slope"],
)
def test_wrong_setting_is_named_and_proven(kind, setting, word):
    found = align_models(models.made(kind), port_of(kind, **setting), models.batch_for(kind))
    cause = next(one for one in found.findings if one.kind == "cause")
    assert (cause.rule, cause.confidence) == ("layer_setting", "proven"), str(found)
    assert word in str(cause.cause)


def adam(rule, **settings):
    return lambda model: rule(model.parameters(), 1e-2, **settings)


@pytest.mark.parametrize(
    ("ours", "theirs", "passes"),
    [
        # Keras adds epsilon before it corrects the moments, torch after it: only a vanishing one is the same.
        (adam(torch.optim.Adam, eps=1e-20), lambda m: keras.optimizers.Adam(1e-2, epsilon=1e-20), True),
        (adam(torch.optim.Adam), lambda m: keras.optimizers.Adam(1e-2, epsilon=1e-8), False),
        (
            adam(torch.optim.AdamW, eps=1e-20),
            lambda m: keras.optimizers.AdamW(1e-2, weight_decay=0.01, epsilon=1e-20),
            True,
        ),
        (
            lambda m: torch.optim.RMSprop(m.parameters(), 1e-2, alpha=0.9, eps=1e-7),
            lambda m: keras.optimizers.RMSprop(1e-2),
            None,
        ),
        (adam(torch.optim.AdamW), lambda m: keras.optimizers.AdamW(1e-2), False),
        (lambda m: torch.optim.SGD(m.parameters(), 0.1), lambda m: keras.optimizers.SGD(0.11), False),
        (lambda m: torch.optim.SGD(m.parameters(), 0.1), lambda m: keras.optimizers.Adam(0.1), False),
    ],
    ids=["adam", "another epsilon", "adamw", "rmsprop", "wrong decay", "wrong rate", "wrong rule"],
)
def test_optimizers_are_compared_with_their_state(ours, theirs, passes):
    found = trained(models.Mlp, (ours, theirs))
    if passes is None:
        # The two take the root on the other side of epsilon.
        assert found.verdict.first_divergence.key.phase in ("update", "optimizer")
        return
    assert found.passed == passes, str(found)
    if not passes:
        assert found.verdict.first_divergence.key.phase in ("lr", "update", "optimizer")


def test_weights_are_transferred_beside_the_model_and_written_on_request():
    model, port = models.made(models.ConvNet), port_of(models.ConvNet)
    before = np.array(port.get_layer("conv1").kernel)
    report = transfer_weights(model, port, inputs=(models.batch_for(models.ConvNet).numpy(),))
    np.testing.assert_array_equal(np.array(port.get_layer("conv1").kernel), before)
    assert report.model.write() is port
    kernel = np.array(port.get_layer("conv1").kernel)
    np.testing.assert_array_equal(kernel, model.conv1.weight.detach().numpy().transpose(2, 3, 1, 0))


@pytest.mark.parametrize("kind", [models.Block, models.ConvNet, models.Stack], ids=lambda kind: kind.__name__)
def test_it_is_the_reference_as_well(kind):
    found = align_models(port_of(kind), models.made(kind, seed=3), models.batch_for(kind).numpy())
    assert found.status is Status.PASS, str(found)
    assert {one.key.run.partition(".")[0] for one in found.verdict.judgements} == {"", "isolated"}


def test_running_changes_nothing_of_the_model():
    port, batch = port_of(models.Language), models.batch_for(models.Language).numpy()
    before, answer = [np.array(one) for one in port.weights], np.array(port(batch).detach())
    align_models(models.made(models.Language), port, batch)
    np.testing.assert_array_equal(np.array(port(batch).detach()), answer)
    assert all(np.array_equal(one, np.array(other)) for one, other in zip(before, port.weights, strict=True))
    assert (keras.config.floatx(), port.embed.dtype_policy.name) == ("float32", "float32")


def test_masks_of_dropout_are_shared():
    ours = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 3))
    layers = [keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dropout(0.5), keras.layers.Dense(3)]
    batch = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    found = align_models(ours, (keras.Sequential(layers), {"training": True}), batch)
    assert found.status is Status.PASS, str(found)


def test_what_it_cannot_do_is_refused_with_what_to_do():
    ours = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    port = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.GaussianDropout(0.5)])
    with pytest.raises(UsageError, match="draws a mask of its own"):
        align_models(ours, (port, {"training": True}), np.ones((2, 4), np.float32))
    with pytest.raises(UsageError, match="has no weights yet"):
        align_models(ours, keras.Sequential([keras.layers.Dense(4)]), np.ones((2, 4), np.float32))
    with pytest.raises(UsageError, match="give one of Keras"):
        trained(models.Mlp, (SGD[0], lambda model: object()))


@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_other_backends_give_the_same_verdicts(backend):
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    script = Path(__file__).with_name("keras_on_a_backend.py")
    done = subprocess.run([sys.executable, script, backend], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
