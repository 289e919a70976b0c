"""Loops of the user's own around models of JAX and Keras are recorded as those of torch are, and compute the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from inspect import signature

import jax
import jax.numpy as jnp
import loops
import nnx_models as ports
import numpy as np
import optax
import pytest
import torch
import torch_models as models
from flax import linen, nnx
from jax import value_and_grad
from optax import apply_updates

from reprod_log import align, load, transfer_weights, watch
from reprod_log.errors import CaptureError

ROWS = np.random.default_rng(1).normal(size=(4, 12)).astype(np.float32)
TARGETS = np.random.default_rng(2).normal(size=(4, 5)).astype(np.float32)


def squares(model, rows, targets):
    return ((model(rows) - targets) ** 2).mean()


@nnx.jit
def step(model, optimizer, rows, targets):
    loss, gradients = nnx.value_and_grad(squares)(model, rows, targets)
    optimizer.update(model, gradients)
    return loss


def trained(model, steps=2, rate=0.05):
    optimizer = nnx.Optimizer(model, optax.sgd(rate, momentum=0.9), wrt=nnx.Param)
    return optimizer, [float(step(model, optimizer, ROWS, TARGETS)) for _ in range(steps)]


def watched(model, *, rate=0.05, **options):
    optimizer = nnx.Optimizer(model, optax.sgd(rate, momentum=0.9), wrt=nnx.Param)
    with watch(model, optimizer=optimizer, **options) as run:
        losses = [float(step(model, optimizer, ROWS, TARGETS)) for _ in range(2)]
    return run.recording, losses


def test_jitted_loop_is_recorded_with_gradients_and_updates_and_computes_the_same():
    plain = trained(ports.Mlp())[1]
    model = ports.Mlp()
    call = ports.Mlp.__call__
    recording, losses = watched(model)
    assert losses == plain
    assert ports.Mlp.__call__ is call
    assert not [name for name in vars(model.enter) if "reprod" in name]
    assert trained(ports.Mlp())[1] == plain
    phases = {"data", "forward", "loss", "backward", "gradient", "update", "parameter", "optimizer"}
    assert {entry.key.phase for entry in recording.entries} == phases
    assert recording.steps == (0, 1)
    assert [float(recording[f"step{number}/loss/loss"].array()) for number in (0, 1)] == losses
    assert recording.provenance.framework == "flax"
    kinds = {one.path: one.kind for one in recording.modules}
    assert kinds == {"": "", "enter": "linear", "norm": "layernorm", "leave": "linear"}


def torch_loop(model, rate=0.05):
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    with watch(model, optimizer=optimizer) as run:
        for _ in range(2):
            optimizer.zero_grad()
            squares(model, torch.from_numpy(ROWS), torch.from_numpy(TARGETS)).backward()
            optimizer.step()
    return run.recording


@pytest.mark.parametrize("rate", [0.05, 0.1])
def test_recordings_of_both_loops_are_compared(rate):
    model = models.made(models.Mlp).train()
    port = transfer_weights(model, ports.Mlp(), inputs=(ROWS,)).model
    found = align(torch_loop(model), watched(port, rate=rate)[0])
    if rate == 0.05:
        assert found.verdict.first_divergence is None, str(found)
    else:
        assert found.verdict.first_divergence.key.phase in ("update", "parameter"), str(found)
    judged = {one.key.phase for one in found.verdict.judgements}
    assert judged >= {"data", "forward", "loss", "backward", "gradient", "update", "parameter", "optimizer"}


@pytest.mark.parametrize("library", loops.LOOPS)
def test_loops_of_the_other_libraries_are_recorded_alike(library):
    transformation = optax.sgd(0.05, momentum=0.9)
    model, train = loops.LOOPS[library](transformation)
    plain = train()
    with watch(model, optimizer=transformation) as run:
        losses = train()
    assert losses == plain == train()
    recording = run.recording
    phases = {"data", "forward", "loss", "backward", "gradient", "update", "parameter", "optimizer"}
    assert {entry.key.phase for entry in recording.entries} == phases
    assert recording.steps == (0, 1)
    # The whole is recorded, too, where it is a function and no module.
    np.testing.assert_array_equal(recording["step0/data/#0:input.0"].array(), loops.ROWS)
    assert recording["step0/forward/#0:output"].shape == loops.TARGETS.shape
    assert [float(recording[f"step{number}/loss/loss"].array()) for number in (0, 1)] == losses
    assert recording.provenance.framework == {"linen": "flax"}.get(library, library)
    assert [one.kind for one in recording.modules if one.kind] == ["linear", "layernorm", "linear"]
    for entry in recording.entries:
        if entry.key.phase == "parameter" and entry.key.step:
            before = recording[str(entry.key).replace("step1", "step0")].array()
            moved = recording[str(entry.key).replace("parameter", "update")].array()
            np.testing.assert_allclose(entry.array(), before + moved, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("library", loops.LOOPS)
def test_wrong_rate_of_such_a_loop_is_placed(library):
    recordings = []
    for rate in (0.05, 0.06):
        model, train = loops.LOOPS[library](optax.sgd(rate, momentum=0.9))
        with watch(model, optimizer=optax.sgd(rate)) as run:
            train()
        recordings.append(run.recording)
    assert align(*recordings).verdict.first_divergence.key.phase == "update"


def test_functions_that_were_made_or_imported_before_are_heard():
    module, rows = linen.Dense(5), ROWS
    params, transformation = module.init(jax.random.key(0), rows), optax.sgd(0.05)
    differentiated = value_and_grad(lambda params: (module.apply(params, rows) ** 2).mean())
    with watch((module, params), optimizer=transformation) as run:
        loss, gradients = differentiated(params)
        updates, _ = transformation.update(gradients, transformation.init(params))
        after = apply_updates(updates=updates, params=params)
    assert float(run.recording["step0/loss/loss"].array()) == float(loss)
    np.testing.assert_array_equal(run.recording["step0/parameter/kernel"].array(), after["params"]["kernel"])
    # Everything is as it was.
    assert differentiated(params)[0] == loss
    assert signature(apply_updates).parameters.keys() == {"params", "updates"}


class Turns(nnx.Module):
    """One layer in a scan, and recomputed for its gradients."""

    def __init__(self):
        self.cell = nnx.Linear(12, 12, rngs=nnx.Rngs(0))

    def __call__(self, x):
        cell = jax.checkpoint(lambda x: jnp.tanh(self.cell(x)))
        return jax.lax.scan(lambda carry, _: (cell(carry), None), x, None, length=3)[0][:, :5]


def test_turns_of_a_loop_are_calls_and_what_is_recomputed_is_recorded_once():
    recording, _ = watched(Turns(), phases=("forward", "backward"), inputs=False)
    keys = [str(entry.key) for entry in recording.entries if entry.key.step == 0 and entry.key.path == "cell"]
    assert sorted(keys) == [
        f"step0/{phase}/cell#{turn}:output" for phase in ("backward", "forward") for turn in range(3)
    ]
    whole = [recording[f"step0/forward/{path}:output"].array() for path in ("cell#2", "#0")]
    np.testing.assert_allclose(np.tanh(whole[0])[:, :5], whole[1], rtol=1e-6)


def test_calls_without_an_optimizer_are_steps():
    model = ports.Mlp()
    with watch(model, phases=("forward",)) as run:
        for scale in (1, 2):
            model(ROWS * scale)
        run.log("rows", ROWS, phase="metric")
    assert run.recording.steps == (0, 1)
    np.testing.assert_array_equal(run.recording["step1/forward/#0:output"].array(), np.asarray(model(ROWS * 2)))


def test_other_models_are_not_recorded():
    with pytest.raises(CaptureError, match="no watched model was called"), watch(ports.Mlp()):
        ports.ConvNet()(models.batch_for(models.ConvNet).numpy())


def test_what_fails_on_our_side_ends_the_recording_and_not_the_loop(monkeypatch):
    plain = trained(ports.Mlp())[1]
    monkeypatch.setattr("reprod_log.frameworks.jax.watching.kept_by", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match="ZeroDivisionError"):
        recording, losses = watched(ports.Mlp())
    assert losses == plain
    assert not recording.complete


NNX = """
import sys
import numpy as np, optax
from flax import nnx

model = nnx.Sequential(nnx.Linear(4, 8, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(8, 2, rngs=nnx.Rngs(1)))
optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

@nnx.jit
def step(model, optimizer, x):
    loss, gradients = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
    optimizer.update(model, gradients)
    return loss

for _ in range(int(sys.argv[1])):
    print(step(model, optimizer, np.ones((3, 4), np.float32)))
"""
HAIKU = """
import sys
import jax, numpy as np, optax
import haiku as hk

net = hk.transform(lambda x: hk.nets.MLP([8, 2])(x))
rows = np.ones((3, 4), np.float32)
params, tx = net.init(jax.random.PRNGKey(0), rows), optax.adam(1e-2)
state = tx.init(params)

@jax.jit
def step(params, state, x):
    loss, gradients = jax.value_and_grad(lambda params: (net.apply(params, None, x) ** 2).mean())(params)
    updates, state = tx.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss

for _ in range(int(sys.argv[1])):
    params, state, loss = step(params, state, rows)
    print(loss)
"""
EQUINOX = """
import sys
import equinox as eqx, jax, numpy as np, optax

class Net(eqx.Module):
    one: eqx.nn.Linear
    two: eqx.nn.Linear

    def __call__(self, x):
        return self.two(jax.nn.relu(self.one(x)))

keys = jax.random.split(jax.random.key(0))
model, tx = Net(eqx.nn.Linear(4, 8, key=keys[0]), eqx.nn.Linear(8, 2, key=keys[1])), optax.adam(1e-2)
state = tx.init(eqx.filter(model, eqx.is_array))

@eqx.filter_jit
def step(model, state, x):
    loss, gradients = eqx.filter_value_and_grad(lambda model: (jax.vmap(model)(x) ** 2).mean())(model)
    updates, state = tx.update(gradients, state, model)
    return eqx.apply_updates(model, updates), state, loss

for _ in range(int(sys.argv[1])):
    model, state, loss = step(model, state, np.ones((3, 4), np.float32))
    print(loss)
"""
LINEN = """
import sys
import jax, numpy as np, optax
from flax import linen as nn
from flax.training.train_state import TrainState

module, rows = nn.Sequential([nn.Dense(8), nn.relu, nn.Dense(2)]), np.ones((3, 4), np.float32)
params = module.init(jax.random.key(0), rows)["params"]
state = TrainState.create(apply_fn=module.apply, params=params, tx=optax.adam(1e-2))

@jax.jit
def step(state, x):
    loss_of = lambda params: (state.apply_fn({"params": params}, x) ** 2).mean()
    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss

for _ in range(int(sys.argv[1])):
    state, loss = step(state, rows)
    print(loss)
"""
KERAS = """
import sys
import numpy as np
import keras

keras.utils.set_random_seed(0)
layers = [keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
model = keras.Sequential(layers)
model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss="mse")
rows = np.random.default_rng(0).normal(size=(3 * int(sys.argv[1]), 4)).astype("float32")
history = model.fit(rows, np.zeros((len(rows), 2), "float32"), batch_size=3, shuffle=False, verbose=0)
print(history.history["loss"])
"""


def ran(folder, text, *options, backend="jax"):
    script = folder / "train.py"
    script.write_text(text, encoding="utf-8")
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *options, str(script), "2"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize(
    ("text", "backend", "weight"),
    [
        (NNX, "", "layers.2.kernel"),
        (LINEN, "", "layers_2.kernel"),
        (EQUINOX, "", "two.weight"),
        (HAIKU, "", "mlp.linear_1.w"),
        (KERAS, "jax", "dense_1.kernel"),
        (KERAS, "torch", "dense_1.kernel"),
        (KERAS, "tensorflow", "dense_1.kernel"),
    ],
    ids=["nnx", "linen", "equinox", "haiku", "keras on jax", "keras on torch", "keras on tensorflow"],
)
def test_script_is_recorded_as_it_stands(tmp_path, text, backend, weight):
    last = weight.rpartition(".")[0]
    plain = ran(tmp_path, text, backend=backend)
    done = ran(tmp_path, text, "-m", "reprod_log", "run", "-o", "rec", backend=backend)
    assert done.returncode == 0, done.stdout + done.stderr
    if backend == "tensorflow":
        # A graph is run operator by operator, which rounds otherwise than the compiled whole on some processors.
        printed = [json.loads(one.stdout.splitlines()[0]) for one in (plain, done)]
        np.testing.assert_allclose(*printed, rtol=1e-6)
    else:
        assert plain.stdout.strip() in done.stdout
    recording = load(tmp_path / "rec")
    assert recording.complete
    assert recording.steps == (0, 1)
    for name in ("loss/loss", f"forward/{last}#0:output", f"backward/{last}#0:output", f"update/{weight}"):
        assert f"step1/{name}" in recording
    arrays = [recording[f"step1/{phase}/{weight}"].array() for phase in ("parameter", "update")]
    before = recording[f"step0/parameter/{weight}"].array()
    np.testing.assert_allclose(arrays[0], before + arrays[1], rtol=1e-5, atol=1e-7)


def test_another_precision_of_such_a_script_is_refused_with_what_to_do(tmp_path):
    done = ran(tmp_path, NNX, "-m", "reprod_log", "run", "--dtype", "float64", "-o", "rec")
    assert done.returncode == 2
    assert "align_models" in done.stderr
