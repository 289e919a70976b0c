"""Flax linen, Equinox and Haiku: right ports are aligned with gradients and updates, wrong ones found and placed."""

from __future__ import annotations

import equinox_models
import haiku_models
import jax
import linen_models
import numpy as np
import optax
import pytest
import torch
import torch_models as models
from flax import linen as nn
from flax import nnx

from reprod_log import Status, align_models
from reprod_log.capture.eager import runner_of
from reprod_log.errors import ReprodLogError, UsageError
from reprod_log.frameworks.side import Scope, Side

LIBRARIES = {"linen": linen_models, "equinox": equinox_models, "haiku": haiku_models}


def squares(outputs, targets):
    return ((outputs - targets) ** 2).mean()


def both(library, name, **settings):
    """The torch model, its port, and a batch."""
    kind, ports = getattr(models, name), LIBRARIES[library]
    batch = models.batch_for(kind).numpy()
    return models.made(kind), ports.made(getattr(ports, name), batch, **settings), batch


@pytest.mark.parametrize(
    ("library", "name"),
    [("linen", "Mlp"), ("linen", "ConvNet"), ("linen", "Language"), ("equinox", "Mlp"), ("haiku", "Mlp")],
)
def test_right_port_is_aligned_with_gradients_and_updates(library, name):
    model, port, batch = both(library, name)
    with torch.no_grad():
        targets = np.random.default_rng(0).normal(size=tuple(model(torch.from_numpy(batch)).shape)).astype(np.float32)
    found = align_models(
        model,
        port,
        batch,
        targets=targets,
        loss=squares,
        optimizer=(lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9), lambda m: optax.sgd(0.05, 0.9)),
        steps=2,
    )
    assert found.status is Status.PASS, str(found)
    assert [one for one in found.findings if one.kind == "cause"] == []
    phases = {one.key.phase for one in found.verdict.judgements}
    assert phases >= {"data", "forward", "loss", "backward", "gradient", "update", "parameter", "optimizer"}
    assert found.weight_map is not None
    assert found.weight_map.agrees


MISTAKES = [
    ("equinox", "Mlp", {"eps": 1e-3}, ("norm",)),
    ("equinox", "Mlp", {"approximate": True}, ("leave", "")),
    ("equinox", "Decoder", {"groups": 4}, ("norm",)),
    ("equinox", "Decoder", {"method": "nearest"}, ("back", "")),
]


@pytest.mark.parametrize(("library", "name", "setting", "places"), MISTAKES, ids=str)
def test_wrong_port_is_placed(library, name, setting, places):
    model, port, batch = both(library, name, **setting)
    found = align_models(model, port, batch)
    assert found.status is Status.FAIL, str(found)
    assert found.verdict.first_divergence.key.path in places, str(found)


def test_equinox_model_that_takes_a_batch_is_refused_with_what_to_do():
    class Batched(equinox_models.eqx.Module):
        inner: equinox_models.eqx.nn.Linear

        def __call__(self, batch):
            return jax.vmap(self.inner)(batch)

    port = Batched(equinox_models.eqx.nn.Linear(3, 2, key=jax.random.PRNGKey(0)))
    batch = np.ones((4, 3), np.float32)
    with pytest.raises(ReprodLogError, match=r"\(model, lambda model, x: model\(x\)\)"):
        align_models(torch.nn.Linear(3, 2), port, batch)
    assert align_models(torch.nn.Linear(3, 2), (port, lambda model, x: model(x)), batch).status is Status.PASS


def recorded(model, batch, **scope):
    side = Side(model)
    return runner_of(side.framework).run(side, [((batch,), None)], Scope(**scope))


def test_turns_of_a_scan_are_calls():
    class Steps(nnx.Module):
        def __init__(self):
            self.rnn = nnx.RNN(nnx.OptimizedLSTMCell(3, 4, rngs=nnx.Rngs(0)))

        def __call__(self, x):
            return self.rnn(x)

    batch = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    found = recorded(Steps(), batch)
    last = found["step0/forward/rnn#0:output"].array()
    turns = [found[f"step0/forward/rnn.cell#{turn}:output.1"].array() for turn in range(5)]
    np.testing.assert_array_equal(np.stack(turns, 1), last)
    assert "step0/forward/rnn.cell#5:output.1" not in found


def test_examples_of_a_vmap_come_as_a_batch():
    batch = models.batch_for(models.Mlp).numpy()
    port = equinox_models.Mlp()
    found = recorded(port, batch)
    np.testing.assert_array_equal(found["step0/forward/enter#0:output"].array().shape, (6, 32))
    plain = jax.jit(jax.vmap(port))(batch)
    np.testing.assert_array_equal(found["step0/forward/#0:output"].array(), np.asarray(plain))


def test_float64_reaches_what_its_author_keeps_in_float32():
    class Cast(nn.Module):
        @nn.compact
        def __call__(self, x):
            return jax.nn.softmax(nn.Dense(4, dtype=np.float32)(x).astype(np.float32)).astype(x.dtype)

    module, batch = Cast(), np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    variables = module.init(jax.random.key(0), batch)
    found = recorded((module, variables), batch, dtype="float64")["step0/forward/#0:output"].array()
    kernel, bias = (np.asarray(variables["params"]["Dense_0"][one], np.float64) for one in ("kernel", "bias"))
    logits = batch.astype(np.float64) @ kernel + bias
    wanted = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    assert jax.config.jax_enable_x64 is False


def test_masks_of_dropout_are_shared():
    class Dropped(nn.Module):
        @nn.compact
        def __call__(self, x, train=True):
            return nn.Dense(3, name="2")(nn.Dropout(0.5, deterministic=not train, name="1")(nn.Dense(16, name="0")(x)))

    ours = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 3))
    batch = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    module = Dropped()
    found = align_models(ours, (module, module.init(jax.random.key(0), batch, train=False), {"train": True}), batch)
    assert found.status is Status.PASS, str(found)


def test_random_numbers_of_its_own_are_refused():
    def noisy(x):
        return x + jax.random.normal(jax.random.key(0), x.shape)

    class Noisy(nnx.Module):
        def __init__(self):
            self.fc = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

        def __call__(self, x):
            return noisy(self.fc(x))

    with pytest.raises(UsageError, match="draws random numbers"):
        recorded(Noisy(), np.ones((2, 4), np.float32))
