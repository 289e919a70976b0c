"""The models of torch_models.py as ports to Keras 3, with the settings that a port may miss."""

from __future__ import annotations

import keras
from keras import layers, ops


class Mlp(keras.Model):
    def __init__(self, *, eps=1e-5, approximate=False):
        super().__init__()
        self.enter, self.norm = layers.Dense(32), layers.LayerNormalization(epsilon=eps)
        self.leave, self.approximate = layers.Dense(5), approximate

    def call(self, x):
        return self.leave(ops.gelu(self.norm(self.enter(x)), approximate=self.approximate))


def ConvNet(*, eps=1e-5, padding=1, counted=True, rows=True, groups=4, stride=2, dilation=1, slope=0.0):
    """A functional model of images with their channels last."""
    given, relu = keras.Input((16, 16, 3)), layers.ReLU(negative_slope=slope, name="relu")
    x = given if padding == "same" else layers.ZeroPadding2D(padding)(given)
    way = "same" if padding == "same" else "valid"
    x = layers.Conv2D(8, 3, strides=stride, padding=way, dilation_rate=dilation, name="conv1")(x)
    x = relu(layers.BatchNormalization(momentum=0.9, epsilon=eps, name="bn1")(x))
    x = layers.Conv2D(8, 3, padding="same", groups=groups, name="conv2")(x)
    x = relu(layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="bn2")(x))
    if counted:
        x = layers.AveragePooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
    else:
        x = layers.AveragePooling2D(3, 2, padding="same")(x)
    x = layers.Permute((3, 1, 2))(x) if rows else x
    return keras.Model(given, layers.Dense(10, name="fc")(layers.Flatten()(x)))


class Residual(layers.Layer):
    def __init__(self, *, slope=0.01, scale=1.0):
        super().__init__()
        self.conv1 = layers.Conv2D(6, 3, padding="same", use_bias=False)
        self.bn1 = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.conv2 = layers.Conv2D(6, 3, padding="same", use_bias=False)
        self.bn2 = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.act, self.scale = layers.LeakyReLU(negative_slope=slope), scale

    def call(self, x):
        return self.act(x + self.scale * self.bn2(self.conv2(self.act(self.bn1(self.conv1(x))))))


class Stack(keras.Model):
    def __init__(self, **settings):
        super().__init__()
        self.stem = layers.Conv2D(6, 1)
        self.blocks = [Residual(), Residual(**settings)]

    def call(self, x):
        x = self.stem(ops.transpose(x, (0, 2, 3, 1)))
        for block in self.blocks:
            x = block(x)
        return ops.mean(x, axis=(1, 2))


class Attention(layers.Layer):
    def __init__(self, width, heads, *, scaled=True):
        super().__init__()
        self.heads, self.scaled = heads, scaled
        self.query, self.key, self.value = (layers.Dense(width) for _ in range(3))
        self.out = layers.Dense(width)

    def call(self, x):
        batch, length, width = x.shape
        q, k, v = (
            ops.transpose(ops.reshape(layer(x), (batch, length, self.heads, -1)), (0, 2, 1, 3))
            for layer in (self.query, self.key, self.value)
        )
        scores = ops.matmul(q, ops.swapaxes(k, -1, -2))
        if self.scaled:
            scores = scores / (width // self.heads) ** 0.5
        mixed = ops.transpose(ops.matmul(ops.softmax(scores), v), (0, 2, 1, 3))
        return self.out(ops.reshape(mixed, (batch, length, width)))


class Block(keras.Model):
    def __init__(self, width=16, heads=4, *, scaled=True, eps=1e-5, activation="gelu"):
        super().__init__()
        self.norm1 = layers.LayerNormalization(epsilon=1e-5)
        self.attn = Attention(width, heads, scaled=scaled)
        self.norm2 = layers.LayerNormalization(epsilon=eps)
        self.up, self.down = layers.Dense(4 * width, activation=activation), layers.Dense(width)

    def call(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(self.up(self.norm2(x)))


class Language(keras.Model):
    def __init__(self, *, doubled=False, **settings):
        super().__init__()
        self.embed, self.block = layers.Embedding(40, 16), Block(**settings)
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.head, self.doubled = layers.Dense(40, use_bias=False), doubled

    def call(self, ids):
        x = self.embed(ids)
        return self.head(self.norm(self.block(x * 4.0 if self.doubled else x)))


class Decoder(keras.Model):
    def __init__(self, *, groups=2, method="bilinear"):
        super().__init__()
        self.conv = layers.Conv2D(8, 3, padding="same")
        self.norm = layers.GroupNormalization(groups, epsilon=1e-5)
        self.act, self.up = layers.Activation("silu"), layers.UpSampling2D(2, interpolation=method)
        self.back = layers.Conv2DTranspose(3, 4, 2, padding="same", activation="sigmoid")

    def call(self, x):
        x = self.back(self.up(self.act(self.norm(self.conv(ops.transpose(x, (0, 2, 3, 1)))))))
        return ops.transpose(x, (0, 3, 1, 2))
