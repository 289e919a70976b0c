"""The models of torch_models.py as ports to Flax NNX, with the settings that a port may miss."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx


class Mlp(nnx.Module):
    def __init__(self, *, eps=1e-5, approximate=False, fast=False):
        rngs = nnx.Rngs(0)
        self.enter = nnx.Linear(12, 32, rngs=rngs)
        self.norm = nnx.LayerNorm(32, epsilon=eps, use_fast_variance=fast, rngs=rngs)
        self.leave, self.approximate = nnx.Linear(32, 5, rngs=rngs), approximate

    def __call__(self, x):
        return self.leave(jax.nn.gelu(self.norm(self.enter(x)), approximate=self.approximate))


class ConvNet(nnx.Module):
    """Takes images with the channels first, as the torch model does, and has them last inside."""

    def __init__(self, *, eps=1e-5, padding=((1, 1), (1, 1)), counted=True, rows=True):
        rngs = nnx.Rngs(0)
        self.conv1 = nnx.Conv(3, 8, (3, 3), strides=2, padding=padding, rngs=rngs)
        self.bn1 = nnx.BatchNorm(8, epsilon=eps, momentum=0.9, rngs=rngs)
        self.conv2 = nnx.Conv(8, 8, (3, 3), padding=((1, 1), (1, 1)), feature_group_count=4, rngs=rngs)
        self.bn2 = nnx.BatchNorm(8, epsilon=1e-5, momentum=0.9, rngs=rngs)
        self.fc, self.counted, self.rows = nnx.Linear(8 * 16, 10, rngs=rngs), counted, rows

    def __call__(self, x):
        x = jax.nn.relu(self.bn1(self.conv1(x.transpose(0, 2, 3, 1))))
        x = jax.nn.relu(self.bn2(self.conv2(x)))
        x = nnx.avg_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)), count_include_pad=self.counted)
        # A flatten of channels first has other rows than one of channels last.
        x = x.transpose(0, 3, 1, 2) if self.rows else x
        return self.fc(x.reshape(x.shape[0], -1))


class Residual(nnx.Module):
    def __init__(self, *, slope=0.01, scale=1.0):
        rngs = nnx.Rngs(0)
        pad = ((1, 1), (1, 1))
        self.conv1 = nnx.Conv(6, 6, (3, 3), padding=pad, use_bias=False, rngs=rngs)
        self.bn1 = nnx.BatchNorm(6, momentum=0.9, rngs=rngs)
        self.conv2 = nnx.Conv(6, 6, (3, 3), padding=pad, use_bias=False, rngs=rngs)
        self.bn2 = nnx.BatchNorm(6, momentum=0.9, rngs=rngs)
        self.slope, self.scale = slope, scale

    def __call__(self, x):
        y = jax.nn.leaky_relu(self.bn1(self.conv1(x)), self.slope)
        return jax.nn.leaky_relu(x + self.scale * self.bn2(self.conv2(y)), self.slope)


class Stack(nnx.Module):
    def __init__(self, **settings):
        self.stem = nnx.Conv(3, 6, (1, 1), rngs=nnx.Rngs(0))
        self.blocks = nnx.List([Residual(), Residual(**settings)])

    def __call__(self, x):
        x = self.stem(x.transpose(0, 2, 3, 1))
        for block in self.blocks:
            x = block(x)
        return x.mean((1, 2))


class Attention(nnx.Module):
    def __init__(self, width, heads, *, scaled=True):
        rngs = nnx.Rngs(0)
        self.heads, self.scaled = heads, scaled
        self.query, self.key, self.value = (nnx.Linear(width, width, rngs=rngs) for _ in range(3))
        self.out = nnx.Linear(width, width, rngs=rngs)

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


class Block(nnx.Module):
    def __init__(self, width=16, heads=4, *, scaled=True, eps=1e-5, approximate=False, post=False):
        rngs = nnx.Rngs(0)
        self.norm1 = nnx.LayerNorm(width, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.attn = Attention(width, heads, scaled=scaled)
        self.norm2 = nnx.LayerNorm(width, epsilon=eps, use_fast_variance=False, rngs=rngs)
        self.up, self.down = nnx.Linear(width, 4 * width, rngs=rngs), nnx.Linear(4 * width, width, rngs=rngs)
        self.approximate, self.post = approximate, post

    def __call__(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x)), approximate=self.approximate))


class Language(nnx.Module):
    def __init__(self, *, doubled=False, **settings):
        rngs = nnx.Rngs(0)
        self.embed, self.block = nnx.Embed(40, 16, rngs=rngs), Block(**settings)
        self.norm = nnx.LayerNorm(16, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.head, self.doubled = nnx.Linear(16, 40, use_bias=False, rngs=rngs), doubled

    def __call__(self, ids):
        x = self.embed(ids)
        return self.head(self.norm(self.block(x * 4.0 if self.doubled else x)))


class Decoder(nnx.Module):
    def __init__(self, *, groups=2, method="bilinear"):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(4, 8, (3, 3), padding=((1, 1), (1, 1)), rngs=rngs)
        self.norm = nnx.GroupNorm(8, num_groups=groups, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.back = nnx.ConvTranspose(8, 3, (4, 4), (2, 2), padding=((2, 2), (2, 2)), transpose_kernel=True, rngs=rngs)
        self.method = method

    def __call__(self, x):
        x = jax.nn.silu(self.norm(self.conv(x.transpose(0, 2, 3, 1))))
        batch, height, width, channels = x.shape
        x = jax.image.resize(x, (batch, 2 * height, 2 * width, channels), self.method)
        return jax.nn.sigmoid(self.back(x)).transpose(0, 3, 1, 2)


def squares(outputs, targets):
    return jnp.mean((outputs - targets) ** 2)
