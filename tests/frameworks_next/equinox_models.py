"""Ports of torch_models.py to Equinox: layers take one example, with the channels first as in torch."""

from __future__ import annotations

import equinox as eqx
import jax


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


class Mlp(eqx.Module):
    enter: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    leave: eqx.nn.Linear
    approximate: bool = eqx.field(static=True)

    def __init__(self, *, eps=1e-5, approximate=False):
        one, two = keys(2)
        self.enter, self.leave = eqx.nn.Linear(12, 32, key=one), eqx.nn.Linear(32, 5, key=two)
        self.norm, self.approximate = eqx.nn.LayerNorm(32, eps=eps), approximate

    def __call__(self, x):
        return self.leave(jax.nn.gelu(self.norm(self.enter(x)), approximate=self.approximate))


class Decoder(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    back: eqx.nn.ConvTranspose2d
    method: str = eqx.field(static=True)

    def __init__(self, *, groups=2, padding=1, method="bilinear"):
        one, two = keys(2)
        self.conv = eqx.nn.Conv2d(4, 8, 3, padding=padding, key=one)
        self.norm = eqx.nn.GroupNorm(groups, 8)
        self.back = eqx.nn.ConvTranspose2d(8, 3, 4, 2, padding=1, key=two)
        self.method = method

    def __call__(self, x):
        x = jax.nn.silu(self.norm(self.conv(x)))
        channels, height, width = x.shape
        return jax.nn.sigmoid(self.back(jax.image.resize(x, (channels, 2 * height, 2 * width), self.method)))


class Attention(eqx.Module):
    query: eqx.nn.Linear
    key: eqx.nn.Linear
    value: eqx.nn.Linear
    out: eqx.nn.Linear
    heads: int = eqx.field(static=True)
    scaled: bool = eqx.field(static=True)

    def __init__(self, width, heads, *, scaled=True):
        self.query, self.key, self.value, self.out = (eqx.nn.Linear(width, width, key=one) for one in keys(4))
        self.heads, self.scaled = heads, scaled

    def __call__(self, x):
        length, width = x.shape
        q, k, v = (
            jax.vmap(layer)(x).reshape(length, self.heads, -1).transpose(1, 0, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.swapaxes(-1, -2)
        if self.scaled:
            scores = scores / (width // self.heads) ** 0.5
        return jax.vmap(self.out)((jax.nn.softmax(scores) @ v).transpose(1, 0, 2).reshape(length, width))


class Block(eqx.Module):
    norm1: eqx.nn.LayerNorm
    attn: Attention
    norm2: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, *, scaled=True, eps=1e-5):
        one, two = keys(2, 1)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(16), eqx.nn.LayerNorm(16, eps=eps)
        self.attn = Attention(16, 4, scaled=scaled)
        self.up, self.down = eqx.nn.Linear(16, 64, key=one), eqx.nn.Linear(64, 16, key=two)

    def __call__(self, x):
        x = x + self.attn(jax.vmap(self.norm1)(x))
        y = jax.nn.gelu(jax.vmap(self.up)(jax.vmap(self.norm2)(x)), approximate=False)
        return x + jax.vmap(self.down)(y)


class Language(eqx.Module):
    embed: eqx.nn.Embedding
    block: Block
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, **settings):
        one, two = keys(2, 2)
        self.embed, self.block = eqx.nn.Embedding(40, 16, key=one), Block(**settings)
        self.norm, self.head = eqx.nn.LayerNorm(16), eqx.nn.Linear(16, 40, use_bias=False, key=two)

    def __call__(self, ids):
        x = self.block(jax.vmap(self.embed)(ids))
        return jax.vmap(self.head)(jax.vmap(self.norm)(x))


class Normed(eqx.Module):
    """With state: an Equinox model that returns it."""

    conv: eqx.nn.Conv2d
    bn: eqx.nn.BatchNorm
    fc: eqx.nn.Linear

    def __init__(self, *, eps=1e-5):
        one, two = keys(2, 3)
        self.conv = eqx.nn.Conv2d(3, 8, 3, padding=1, key=one)
        self.bn = eqx.nn.BatchNorm(8, "batch", eps=eps, momentum=0.9, mode="batch")
        self.fc = eqx.nn.Linear(8, 4, key=two)

    def __call__(self, x, state):
        x, state = self.bn(self.conv(x), state)
        return self.fc(jax.nn.relu(x).mean((1, 2))), state


def made(kind, batch=None, **settings):
    """A model in evaluation mode."""
    return kind(**settings)
