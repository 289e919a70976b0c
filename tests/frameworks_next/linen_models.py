"""Ports of torch_models.py to Flax linen, with the settings that a port may miss."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn


class Mlp(nn.Module):
    eps: float = 1e-5
    approximate: bool = False

    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm(epsilon=self.eps, name="norm")(nn.Dense(32, name="enter")(x))
        return nn.Dense(5, name="leave")(jax.nn.gelu(x, approximate=self.approximate))


class ConvNet(nn.Module):
    eps: float = 1e-5
    padding: object = ((1, 1), (1, 1))
    rows: bool = True

    @nn.compact
    def __call__(self, x, train=False):
        x = nn.Conv(8, (3, 3), strides=2, padding=self.padding)(x.transpose(0, 2, 3, 1))
        x = jax.nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=self.eps)(x))
        x = nn.Conv(8, (3, 3), padding=((1, 1), (1, 1)), feature_group_count=4)(x)
        x = jax.nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        x = nn.avg_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        x = x.transpose(0, 3, 1, 2) if self.rows else x
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


class Attention(nn.Module):
    heads: int = 4
    scaled: bool = True

    def setup(self):
        self.query, self.key, self.value, self.out = (nn.Dense(16) for _ in range(4))

    def __call__(self, x):
        batch, length, width = x.shape
        q, k, v = (
            layer(x).reshape(batch, length, self.heads, -1).transpose(0, 2, 1, 3)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.swapaxes(-1, -2)
        if self.scaled:
            scores = scores / (width // self.heads) ** 0.5
        return self.out((jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, length, width))


class Block(nn.Module):
    scaled: bool = True
    eps: float = 1e-5

    def setup(self):
        self.norm1, self.norm2 = nn.LayerNorm(epsilon=1e-5), nn.LayerNorm(epsilon=self.eps)
        self.attn, self.up, self.down = Attention(scaled=self.scaled), nn.Dense(64), nn.Dense(16)

    def __call__(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x)), approximate=False))


class Language(nn.Module):
    scaled: bool = True
    tied: bool = False

    @nn.compact
    def __call__(self, ids):
        x = Block(self.scaled, name="block")(nn.Embed(40, 16, name="embed")(ids))
        return nn.Dense(40, use_bias=False, name="head")(nn.LayerNorm(epsilon=1e-5, name="norm")(x))


def made(kind, batch, **settings):
    """A module with fresh variables."""
    module = kind(**settings)
    return module, module.init(jax.random.key(0), jnp.asarray(batch))
