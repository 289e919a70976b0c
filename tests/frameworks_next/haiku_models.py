"""Ports of torch_models.py to Haiku, with the settings that a port may miss."""

from __future__ import annotations

import haiku as hk
import jax
import jax.numpy as jnp


def norm(width=None, eps=1e-5, name=None):
    return hk.LayerNorm(-1, True, True, eps=eps, name=name)


class Mlp(hk.Module):
    def __init__(self, *, eps=1e-5, approximate=False, name=None):
        super().__init__(name)
        self.eps, self.approximate = eps, approximate

    def __call__(self, x):
        x = norm(eps=self.eps, name="norm")(hk.Linear(32, name="enter")(x))
        return hk.Linear(5, name="leave")(jax.nn.gelu(x, approximate=self.approximate))


class ConvNet(hk.Module):
    def __init__(self, *, padding=((1, 1), (1, 1)), rows=True, eps=1e-5, name=None):
        super().__init__(name)
        self.padding, self.rows, self.eps = padding, rows, eps

    def __call__(self, x, is_training=False):
        x = hk.Conv2D(8, 3, stride=2, padding=self.padding, name="conv1")(x.transpose(0, 2, 3, 1))
        x = jax.nn.relu(hk.BatchNorm(True, True, 0.9, eps=self.eps, name="bn1")(x, is_training))
        x = hk.Conv2D(8, 3, padding=((1, 1), (1, 1)), feature_group_count=4, name="conv2")(x)
        x = jax.nn.relu(hk.BatchNorm(True, True, 0.9, name="bn2")(x, is_training))
        x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        x = hk.avg_pool(x, (1, 3, 3, 1), (1, 2, 2, 1), "VALID")
        x = x.transpose(0, 3, 1, 2) if self.rows else x
        return hk.Linear(10, name="fc")(x.reshape(x.shape[0], -1))


class Attention(hk.Module):
    def __init__(self, *, heads=4, scaled=True, name=None):
        super().__init__(name)
        self.heads, self.scaled = heads, scaled

    def __call__(self, x):
        batch, length, width = x.shape
        q, k, v = (
            hk.Linear(width, name=name)(x).reshape(batch, length, self.heads, -1).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(-1, -2)
        if self.scaled:
            scores = scores / (width // self.heads) ** 0.5
        y = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        return hk.Linear(width, name="out")(y)


class Block(hk.Module):
    def __init__(self, *, scaled=True, eps=1e-5, name=None):
        super().__init__(name)
        self.attn, self.eps = Attention(scaled=scaled, name="attn"), eps

    def __call__(self, x):
        x = x + self.attn(norm(name="norm1")(x))
        y = jax.nn.gelu(hk.Linear(64, name="up")(norm(eps=self.eps, name="norm2")(x)), approximate=False)
        return x + hk.Linear(16, name="down")(y)


class Language(hk.Module):
    def __init__(self, *, scaled=True, name=None):
        super().__init__(name)
        self.scaled = scaled

    def __call__(self, ids):
        x = Block(scaled=self.scaled, name="block")(hk.Embed(40, 16, name="embed")(ids))
        return hk.Linear(40, with_bias=False, name="head")(norm(name="norm")(x))


def made(kind, batch, **settings):
    """A transformed function with fresh parameters, and a state where it has one."""
    function = hk.transform_with_state(lambda x, **mode: kind(**settings)(x, **mode))
    # Only a call in training makes the running averages.
    mode = {"is_training": True} if kind is ConvNet else {}
    params, state = function.init(jax.random.PRNGKey(0), jnp.asarray(batch), **mode)
    if state:
        return function, params, state
    return hk.without_state(function), params
