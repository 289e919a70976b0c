"""Two small networks in every framework, each with one mistake that a port makes: FRAMEWORKS[name](network, wrong).

Started as a program it compares a row of the matrix on another backend of Keras: python matrix.py keras nnx
"""

from __future__ import annotations

import io
import sys
from itertools import product

import numpy as np
import paddle
import torch

# paddle is loaded before what loads tensorflow.
import equinox as eqx  # isort: skip
import haiku as hk  # isort: skip
import jax  # isort: skip
import jax.numpy as jnp  # isort: skip
import keras  # isort: skip
import onnx  # isort: skip
from flax import linen, nnx  # isort: skip

from reprod_log import Status, align_models, transfer_weights

EVEN, SAME = ((1, 1), (1, 1)), "SAME"
BATCHES = {
    "mlp": np.random.default_rng(0).normal(size=(6, 12)).astype(np.float32),
    "conv": np.random.default_rng(1).normal(size=(2, 3, 16, 16)).astype(np.float32),
}
PLACES = {"mlp": ("norm", "1"), "conv": ("conv", "0")}  # by name, or by number in a sequence
"""Where the mistake is: epsilon of the norm; padding of the convolution, which of a stride of two is another one."""


def of_torch(network, wrong=False):
    torch.manual_seed(0)
    nn = torch.nn
    if network == "mlp":
        return nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16, 1e-3 if wrong else 1e-5), nn.Tanh(), nn.Linear(16, 5))
    conv = nn.Conv2d(3, 8, 3, stride=2, padding=0 if wrong else 1)
    padded = [nn.ZeroPad2d((0, 1, 0, 1)), conv] if wrong else [conv]
    return nn.Sequential(*padded, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


def of_paddle(network, wrong=False):
    paddle.seed(0)
    nn = paddle.nn
    if network == "mlp":
        norm = nn.LayerNorm(16, 1e-3 if wrong else 1e-5)
        return nn.Sequential(nn.Linear(12, 16), norm, nn.Tanh(), nn.Linear(16, 5))
    conv = nn.Conv2D(3, 8, 3, stride=2, padding=[0, 1, 0, 1] if wrong else 1)
    return nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(8, 5))


class NnxNet(nnx.Module):
    def __init__(self, network, wrong):
        rngs = nnx.Rngs(0)
        self.network = network
        if network == "mlp":
            self.enter = nnx.Linear(12, 16, rngs=rngs)
            self.norm = nnx.LayerNorm(16, epsilon=1e-3 if wrong else 1e-5, rngs=rngs)
        else:
            self.conv = nnx.Conv(3, 8, (3, 3), strides=2, padding=SAME if wrong else EVEN, rngs=rngs)
        self.leave = nnx.Linear(16 if network == "mlp" else 8, 5, rngs=rngs)

    def __call__(self, x):
        if self.network == "mlp":
            return self.leave(jnp.tanh(self.norm(self.enter(x))))
        return self.leave(jax.nn.relu(self.conv(x.transpose(0, 2, 3, 1))).mean((1, 2)))


class LinenNet(linen.Module):
    network: str
    wrong: bool

    @linen.compact
    def __call__(self, x):
        if self.network == "mlp":
            norm = linen.LayerNorm(epsilon=1e-3 if self.wrong else 1e-5, name="norm")
            return linen.Dense(5)(jnp.tanh(norm(linen.Dense(16)(x))))
        conv = linen.Conv(8, (3, 3), strides=2, padding=SAME if self.wrong else EVEN, name="conv")
        return linen.Dense(5)(jax.nn.relu(conv(x.transpose(0, 2, 3, 1))).mean((1, 2)))


def of_linen(network, wrong=False):
    module = LinenNet(network, wrong)
    return module, module.init(jax.random.key(0), BATCHES[network])


class EquinoxMlp(eqx.Module):
    enter: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    leave: eqx.nn.Linear

    def __call__(self, x):
        return self.leave(jnp.tanh(self.norm(self.enter(x))))


class EquinoxConv(eqx.Module):
    conv: eqx.nn.Conv2d
    leave: eqx.nn.Linear

    def __call__(self, x):
        return self.leave(jax.nn.relu(self.conv(x)).mean((1, 2)))


def of_equinox(network, wrong=False):
    one, two = jax.random.split(jax.random.key(0))
    if network == "mlp":
        norm = eqx.nn.LayerNorm(16, eps=1e-3 if wrong else 1e-5)
        return EquinoxMlp(eqx.nn.Linear(12, 16, key=one), norm, eqx.nn.Linear(16, 5, key=two))
    conv = eqx.nn.Conv2d(3, 8, 3, stride=2, padding=SAME if wrong else 1, key=one)
    return EquinoxConv(conv, eqx.nn.Linear(8, 5, key=two))


def of_haiku(network, wrong=False):
    def function(x):
        if network == "mlp":
            norm = hk.LayerNorm(-1, True, True, eps=1e-3 if wrong else 1e-5, name="norm")
            return hk.Linear(5)(jnp.tanh(norm(hk.Linear(16)(x))))
        conv = hk.Conv2D(8, 3, stride=2, padding=SAME if wrong else EVEN, name="conv")
        return hk.Linear(5)(jax.nn.relu(conv(x.transpose(0, 2, 3, 1))).mean((1, 2)))

    net = hk.transform(function)
    return net, net.init(jax.random.PRNGKey(0), BATCHES[network])


def of_keras(network, wrong=False):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    if network == "mlp":
        norm = layers.LayerNormalization(epsilon=1e-3 if wrong else 1e-5, name="norm")
        return keras.Sequential(
            [keras.Input((12,)), layers.Dense(16), norm, layers.Activation("tanh"), layers.Dense(5)]
        )
    given = keras.Input((16, 16, 3))
    x = given if wrong else layers.ZeroPadding2D(1)(given)
    x = layers.Conv2D(8, 3, strides=2, padding="same" if wrong else "valid", name="conv")(x)
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(x))
    return keras.Model(given, layers.Dense(5)(x))


def of_onnx(network, wrong=False):
    """The torch network exported: with its weights, which nobody can replace."""
    file = io.BytesIO()
    batch = torch.from_numpy(BATCHES[network])
    torch.onnx.export(of_torch(network, wrong).eval(), (batch,), file, dynamo=False)
    return onnx.load_from_string(file.getvalue())


FRAMEWORKS = {
    "torch": of_torch,
    "paddle": of_paddle,
    "nnx": lambda network, wrong=False: NnxNet(network, wrong),
    "linen": of_linen,
    "equinox": of_equinox,
    "haiku": of_haiku,
    "keras": of_keras,
    "onnx": of_onnx,
}


def compared(reference, candidate, network, wrong=False):
    """The alignment of a cell; a graph keeps its weights, so they are given to the other side first."""
    batch = BATCHES[network]
    ours, theirs = FRAMEWORKS[reference](network), FRAMEWORKS[candidate](network, wrong)
    if "onnx" not in (reference, candidate):
        return align_models(ours, theirs, batch)
    source = of_torch(network)
    if reference != "onnx":
        ours = transfer_weights(source, ours, inputs=(batch,)).model
    if candidate != "onnx":
        theirs = transfer_weights(source, theirs, inputs=(batch,)).model
    return align_models(ours, theirs, batch, transfer=False)


def check(reference, candidate, network):
    """A right port is aligned, or not proven with a reason; a wrong one is found, and found where the mistake is."""
    right = compared(reference, candidate, network)
    assert right.status is Status.PASS or (right.status is not Status.FAIL and right.doubts), str(right)
    wrong = compared(reference, candidate, network, wrong=True)
    assert wrong.status is Status.FAIL, str(wrong)
    path = wrong.verdict.first_divergence.key.path.lower()
    assert any(place in path for place in PLACES[network]), str(wrong)
    return right, wrong


if __name__ == "__main__":
    failures = 0
    for other, network in product(sys.argv[2:] or FRAMEWORKS, BATCHES):
        for pair in sorted({(other, sys.argv[1]), (sys.argv[1], other)}):
            try:
                right, wrong = check(*pair, network)
                key = wrong.verdict.first_divergence.key
                print(*pair, network, right.status.name, wrong.status.name, key, flush=True)
            except Exception as error:  # one cell after the other
                failures += 1
                print(*pair, network, "FAILED", type(error).__name__, str(error)[:400], flush=True)
    sys.exit(bool(failures))
