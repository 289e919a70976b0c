"""The same small network in a jitted loop of each library of JAX, as its users write it: NAME → (model, tx, train)."""

from __future__ import annotations

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

ROWS = np.random.default_rng(1).normal(size=(4, 12)).astype(np.float32)
TARGETS = np.random.default_rng(2).normal(size=(4, 5)).astype(np.float32)


def loop(model, call, start, transformation, params, apply=optax.apply_updates):
    """A jitted step around `call(model, x)`, where `params(model)` are trained; gives the losses of two of them."""

    @eqx.filter_jit
    def step(model, state, x, y):
        loss, gradients = eqx.filter_value_and_grad(lambda model: ((call(model, x) - y) ** 2).mean())(model)
        updates, state = transformation.update(gradients, state, params(model))
        return apply(model, updates), state, loss

    def train():
        now, state, losses = start, transformation.init(params(start)), []
        for _ in range(2):
            now, state, loss = step(now, state, ROWS, TARGETS)
            losses.append(float(loss))
        return losses

    return model, train


def of_linen(transformation):
    module = nn.Sequential([nn.Dense(8), nn.LayerNorm(epsilon=1e-5), jnp.tanh, nn.Dense(5)])
    variables = module.init(jax.random.key(0), ROWS)
    return loop(
        (module, variables),
        lambda p, x: module.apply({"params": p}, x),
        variables["params"],
        transformation,
        lambda p: p,
    )


def of_equinox(transformation):
    keys = jax.random.split(jax.random.key(0))
    layers = [
        eqx.nn.Linear(12, 8, key=keys[0]),
        eqx.nn.LayerNorm(8),
        eqx.nn.Lambda(jnp.tanh),
        eqx.nn.Linear(8, 5, key=keys[1]),
    ]
    model = eqx.nn.Sequential(layers)
    own = lambda model: eqx.filter(model, eqx.is_array)  # noqa: E731
    return loop(model, lambda m, x: jax.vmap(m)(x), model, transformation, own, eqx.apply_updates)


def of_haiku(transformation):
    """Several modules of a function that is no module itself."""

    def network(x):
        return hk.Linear(5)(jnp.tanh(hk.LayerNorm(-1, True, True)(hk.Linear(8)(x))))

    net = hk.transform(network)
    params = net.init(jax.random.PRNGKey(0), ROWS)
    return loop((net, params), lambda p, x: net.apply(p, None, x), params, transformation, lambda p: p)


LOOPS = {"linen": of_linen, "equinox": of_equinox, "haiku": of_haiku}
