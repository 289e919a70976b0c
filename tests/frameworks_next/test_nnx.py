"""Flax NNX: right ports of torch models are aligned with gradients and updates, wrong ones are found and placed."""

from __future__ import annotations

import jax
import nnx_models as ports
import numpy as np
import optax
import pytest
import torch
import torch_models as models
from flax import nnx

from reprod_log import Status, align_models, transfer_weights
from reprod_log.errors import UsageError

KINDS = [getattr(models, name) for name in ("Mlp", "ConvNet", "Stack", "Block", "Language", "Decoder")]


def port_of(kind, **settings):
    model = getattr(ports, kind.__name__)(**settings)
    model.eval()
    return model


def squares(outputs, targets):
    return ((outputs - targets) ** 2).mean()


def trained(kind, optimizers, **settings):
    """Both models on one batch with a loss and three updates."""
    model, batch = models.made(kind), models.batch_for(kind)
    with torch.no_grad():
        targets = np.random.default_rng(0).normal(size=tuple(model(batch).shape)).astype(np.float32)
    return align_models(
        model,
        port_of(kind, **settings),
        batch,
        targets=targets,
        loss=(squares, ports.squares),
        optimizer=optimizers,
        steps=2,
    )


def first(found):
    return found.verdict.first_divergence.key


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_right_port_is_aligned_with_gradients_and_updates(kind):
    sgd = (lambda model: torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), lambda model: optax.sgd(0.05, 0.9))
    found = trained(kind, sgd)
    assert found.status is Status.PASS, str(found)
    assert [one for one in found.findings if one.kind == "cause"] == []
    phases = {one.key.phase for one in found.verdict.judgements}
    assert phases >= {"data", "forward", "loss", "backward", "gradient", "update", "parameter", "optimizer"}
    assert {one.key.run.partition(".")[0] for one in found.verdict.judgements} >= {"", "isolated", "injected"}


MISTAKES = [
    (models.Mlp, {"eps": 1e-6}, ("norm",)),
    (models.Mlp, {"eps": 1e-3}, ("norm",)),
    (models.Mlp, {"approximate": True}, ("leave", "")),
    (models.ConvNet, {"eps": 1e-3}, ("bn1",)),
    (models.ConvNet, {"padding": "SAME"}, ("conv1",)),
    (models.ConvNet, {"counted": False}, ("fc", "")),
    (models.Stack, {"slope": 0.2}, ("blocks.1.conv2", "blocks.1", "")),
    (models.Stack, {"scale": 0.5}, ("blocks.1", "")),
    (models.Block, {"scaled": False}, ("attn.out", "attn")),
    (models.Block, {"eps": 1e-2}, ("norm2",)),
    (models.Language, {"doubled": True}, ("block", "block.norm1")),
    (models.Decoder, {"groups": 4}, ("norm",)),
    (models.Decoder, {"method": "nearest"}, ("back", "")),
]


@pytest.mark.parametrize(("kind", "setting", "places"), MISTAKES, ids=lambda one: getattr(one, "__name__", str(one)))
def test_wrong_port_is_placed(kind, setting, places):
    model, batch = models.made(kind), models.batch_for(kind)
    found = align_models(model, port_of(kind, **setting), batch)
    assert found.status is Status.FAIL, str(found)
    assert first(found).path in places, str(found)


def test_rows_behind_a_flatten_in_another_order_are_told_and_not_proven():
    found = align_models(
        models.made(models.ConvNet), port_of(models.ConvNet, rows=False), models.batch_for(models.ConvNet)
    )
    assert found.status is Status.UNPROVEN, str(found)
    assert any(one.kind == "doubt" and "fc.kernel" in str(one.cause) for one in found.findings)


def test_wrong_setting_is_named_and_proven():
    found = align_models(models.made(models.Mlp), port_of(models.Mlp, eps=1e-3), models.batch_for(models.Mlp))
    cause = next(one for one in found.findings if one.kind == "cause")
    assert (cause.rule, cause.confidence) == ("layer_setting", "proven")
    assert "eps" in str(cause.cause)


@pytest.mark.parametrize(
    ("theirs", "phase"),
    [
        (lambda model: optax.adamw(1e-2), "update"),
        (lambda model: optax.adam(1e-3), "update"),
        (lambda model: optax.sgd(1e-2), "update"),
    ],
    ids=["decay 1e-4 for 1e-2", "rate", "rule"],
)
def test_wrong_optimizer_is_found(theirs, phase):
    found = trained(models.Mlp, (lambda model: torch.optim.AdamW(model.parameters(), 1e-2), theirs))
    assert found.status is Status.FAIL
    assert first(found).phase in (phase, "optimizer"), str(found)


def test_adamw_with_the_same_decay_is_aligned():
    ours = lambda model: torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=1e-4)  # noqa: E731
    found = trained(models.Mlp, (ours, lambda model: optax.adamw(1e-2)))
    assert found.status is Status.PASS, str(found)


def test_weights_are_transferred_into_a_new_model():
    model, port = models.made(models.ConvNet), port_of(models.ConvNet)
    before = np.array(port.conv1.kernel[...])
    report = transfer_weights(model, port, inputs=(models.batch_for(models.ConvNet).numpy(),))
    kernel = np.array(report.model.conv1.kernel[...])
    np.testing.assert_array_equal(kernel, model.conv1.weight.detach().numpy().transpose(2, 3, 1, 0))
    np.testing.assert_array_equal(np.array(port.conv1.kernel[...]), before)


def test_it_is_the_reference_as_well():
    port, batch = port_of(models.Block), models.batch_for(models.Block)
    found = align_models(port, models.made(models.Block, seed=3), batch.numpy())
    assert found.status is Status.PASS, str(found)


def test_taps_change_no_bit():
    from reprod_log.capture.eager import runner_of
    from reprod_log.frameworks.side import Scope, Side

    port, batch = port_of(models.Language), models.batch_for(models.Language).numpy()
    side = Side(port)
    recording = runner_of(side.framework).run(side, [((batch,), None)], Scope())
    plain = nnx.jit(lambda model, ids: model(ids))(port, batch)
    np.testing.assert_array_equal(recording["step0/forward/#0:output"].array(), np.array(plain))


def test_what_it_cannot_do_is_refused_with_what_to_do():
    with pytest.raises(UsageError, match="transformation of optax"):
        trained(models.Mlp, (lambda model: torch.optim.SGD(model.parameters(), 0.1), lambda model: object()))
    assert jax.config.jax_enable_x64 is False
