"""Convolutions: padding outside and inside, causal, as Linear, as Conv1d or Conv2d, unfolded, channels last, folded."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pn
from torch import nn as tn

from ports.port import (
    ENTROPY,
    SQUARE,
    Formulation,
    Port,
    State,
    floats,
    ints,
    lin,
    lins,
    paddle_entropy_by_hand,
    renamed,
    reregistered,
    same,
    sames,
)


class PadOutside(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = tn.Conv2d(3, 6, 3)
        self.second = tn.Conv2d(6, 6, 5, stride=2)
        self.head = tn.Linear(6, 4)

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.first(TF.pad(image, (1, 1, 1, 1))))
        x = torch.relu(self.second(TF.pad(x, (2, 2, 2, 2))))
        return self.head(x.mean((2, 3)))


class PadInside(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = pn.Conv2D(3, 6, 3, padding=1)
        self.second = pn.Conv2D(6, 6, 5, stride=2, padding=2)
        self.head = pn.Linear(6, 4)

    def forward(self, image: Any) -> Any:
        x = PF.relu(self.first(image))
        x = PF.relu(self.second(x))
        return self.head(x.mean([2, 3]))


class PadLayers(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.body = pn.Sequential(
            pn.ZeroPad2D(1), pn.Conv2D(3, 6, 3), pn.ReLU(), pn.Conv2D(6, 6, 5, stride=2, padding=2), pn.ReLU()
        )
        self.pool = pn.AdaptiveAvgPool2D(1)
        self.out = pn.Linear(6, 4)

    def forward(self, image: Any) -> Any:
        return self.out(self.pool(self.body(image)).flatten(1))


class CausalChomp(tn.Module):
    """A TCN that pads both ends and cuts the right one off."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = tn.ModuleList([tn.Conv1d(4, 8, 3, padding=2), tn.Conv1d(8, 8, 3, padding=4, dilation=2)])
        self.short = tn.Conv1d(4, 8, 1)
        self.head = tn.Linear(8, 3)

    def forward(self, series: Any) -> Any:
        x = torch.relu(self.convs[0](series)[:, :, :-2])
        x = torch.relu(self.convs[1](x)[:, :, :-4])
        return self.head((x + self.short(series))[:, :, -1])


class CausalLeft(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.convs = pn.LayerList([pn.Conv1D(4, 8, 3), pn.Conv1D(8, 8, 3, dilation=2)])
        self.short = pn.Conv1D(4, 8, 1)
        self.head = pn.Linear(8, 3)

    def forward(self, series: Any) -> Any:
        x = PF.relu(self.convs[0](PF.pad(series, [2, 0], data_format="NCL")))
        x = PF.relu(self.convs[1](PF.pad(x, [4, 0], data_format="NCL")))
        return self.head((x + self.short(series))[:, :, -1])


class CausalTwoD(pn.Layer):
    """Convolutions of height 1 that pad to the left only; the shortcut as a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = pn.Linear(8, 3)
        self.skip = pn.Linear(4, 8)
        self.c2 = pn.Conv2D(8, 8, (1, 3), dilation=(1, 2))
        self.c1 = pn.Conv2D(4, 8, (1, 3))

    def forward(self, series: Any) -> Any:
        x = series.unsqueeze(2)
        x = PF.relu(self.c1(PF.pad(x, [2, 0, 0, 0])))
        x = PF.relu(self.c2(PF.pad(x, [4, 0, 0, 0]))).squeeze(2)
        return self.head(x[:, :, -1] + self.skip(series[:, :, -1]))


def causal_two_d(w: State) -> State:
    return {
        **{f"c{i + 1}.weight": w[f"convs.{i}.weight"][:, :, None] for i in (0, 1)},
        **{f"c{i + 1}.bias": w[f"convs.{i}.bias"] for i in (0, 1)},
        "skip.weight": w["short.weight"][:, :, 0].T,
        "skip.bias": w["short.bias"],
        **lin(w, "head", "head"),
    }


class GatedDilated(tn.Module):
    """Two WaveNet layers: filter and gate are convolutions of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.start = tn.Conv1d(2, 6, 1)
        self.filters = tn.ModuleList([tn.Conv1d(6, 6, 2, dilation=2**i) for i in range(2)])
        self.gates = tn.ModuleList([tn.Conv1d(6, 6, 2, dilation=2**i) for i in range(2)])
        self.skips = tn.ModuleList([tn.Conv1d(6, 5, 1) for _ in range(2)])
        self.end = tn.Conv1d(5, 3, 1)

    def forward(self, wave: Any) -> Any:
        x, total = self.start(wave), 0
        for i in range(2):
            padded = TF.pad(x, (2**i, 0))
            x = x + torch.tanh(self.filters[i](padded)) * torch.sigmoid(self.gates[i](padded))
            total = total + self.skips[i](x)
        return self.end(torch.relu(total))


class GatedPacked(pn.Layer):
    """Filter and gate in one convolution, split afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.start = pn.Conv1D(2, 6, 1)
        self.both = pn.LayerList([pn.Conv1D(6, 12, 2, dilation=2**i) for i in range(2)])
        self.skips = pn.LayerList([pn.Conv1D(6, 5, 1) for _ in range(2)])
        self.end = pn.Conv1D(5, 3, 1)

    def forward(self, wave: Any) -> Any:
        x, total = self.start(wave), 0
        for i in range(2):
            left, right = self.both[i](PF.pad(x, [2**i, 0], data_format="NCL")).chunk(2, axis=1)
            x = x + PF.tanh(left) * PF.sigmoid(right)
            total = total + self.skips[i](x)
        return self.end(PF.relu(total))


class GatedShifted(pn.Layer):
    """The two taps of each convolution as two products with a tensor shifted in time."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = pn.Linear(2, 6)
        for i in range(2):
            for name in ("old_t", "new_t", "old_s", "new_s"):
                setattr(self, f"{name}{i}", self.create_parameter([6, 6]))
            setattr(self, f"bias_t{i}", self.create_parameter([6], is_bias=True))
            setattr(self, f"bias_s{i}", self.create_parameter([6], is_bias=True))
            setattr(self, f"out{i}", pn.Linear(6, 5))
        self.leave = pn.Linear(5, 3)

    def forward(self, wave: Any) -> Any:
        x, total = self.enter(wave.transpose([0, 2, 1])), 0
        for i in range(2):
            back = paddle.concat([paddle.zeros_like(x[:, : 2**i]), x[:, : -(2**i)]], axis=1)
            heard = back @ getattr(self, f"old_t{i}") + x @ getattr(self, f"new_t{i}") + getattr(self, f"bias_t{i}")
            gate = back @ getattr(self, f"old_s{i}") + x @ getattr(self, f"new_s{i}") + getattr(self, f"bias_s{i}")
            x = x + PF.tanh(heard) * PF.sigmoid(gate)
            total = total + getattr(self, f"out{i}")(x)
        return self.leave(PF.relu(total)).transpose([0, 2, 1])


def gated_packed(w: State) -> State:
    made = sames(w, "start skips end")
    for i in range(2):
        for leaf in ("weight", "bias"):
            made[f"both.{i}.{leaf}"] = np.concatenate([w[f"filters.{i}.{leaf}"], w[f"gates.{i}.{leaf}"]])
    return made


def gated_shifted(w: State) -> State:
    def point(old: str, new: str) -> State:
        return {f"{new}.weight": w[f"{old}.weight"][:, :, 0].T, f"{new}.bias": w[f"{old}.bias"]}

    made = {**point("start", "enter"), **point("end", "leave")}
    for i in range(2):
        for letter, table in (("t", "filters"), ("s", "gates")):
            made[f"old_{letter}{i}"] = w[f"{table}.{i}.weight"][:, :, 0].T
            made[f"new_{letter}{i}"] = w[f"{table}.{i}.weight"][:, :, 1].T
            made[f"bias_{letter}{i}"] = w[f"{table}.{i}.bias"]
        made |= point(f"skips.{i}", f"out{i}")
    return made


class PointConv(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.expand, self.project = tn.Conv2d(4, 10, 1), tn.Conv2d(10, 4, 1)
        self.norm = tn.BatchNorm2d(10)

    def forward(self, x: Any) -> Any:
        return x + self.project(TF.gelu(self.norm(self.expand(x))))


class PointLinear(pn.Layer):
    """Channels last inside, linear layers; the norm keeps its layout."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.project = pn.Linear(4, 10), pn.Linear(10, 4)
        self.norm = pn.BatchNorm2D(10, data_format="NHWC")

    def forward(self, x: Any) -> Any:
        y = x.transpose([0, 2, 3, 1])
        y = self.project(PF.gelu(self.norm(self.expand(y))))
        return x + y.transpose([0, 3, 1, 2])


class PointMatmul(pn.Layer):
    """Matrices times flattened pixels; batch norm over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.m0, self.m1 = self.create_parameter([4, 10]), self.create_parameter([10, 4])
        self.b0, self.b1 = self.create_parameter([4, 1], is_bias=True), self.create_parameter([10, 1], is_bias=True)
        self.bn = pn.BatchNorm1D(10)

    def forward(self, x: Any) -> Any:
        y = x.flatten(2)
        y = PF.gelu(self.bn(paddle.matmul(self.m1, y) + self.b1))
        return x + (paddle.matmul(self.m0, y) + self.b0).reshape(x.shape)


def point_linear(w: State) -> State:
    made = same(w, "norm")
    for name in ("expand", "project"):
        made[f"{name}.weight"], made[f"{name}.bias"] = w[f"{name}.weight"][:, :, 0, 0].T, w[f"{name}.bias"]
    return made


def point_matmul(w: State) -> State:
    return {
        **same(w, "norm", "bn"),
        "m1": w["expand.weight"][:, :, 0, 0],
        "b1": w["expand.bias"][:, None],
        "m0": w["project.weight"][:, :, 0, 0],
        "b0": w["project.bias"][:, None],
    }


class TextConv(tn.Module):
    """Kim's CNN for sentences: three widths, max over time."""

    def __init__(self) -> None:
        super().__init__()
        self.words = tn.Embedding(20, 6)
        self.convs = tn.ModuleList([tn.Conv1d(6, 5, width) for width in (2, 3, 4)])
        self.head = tn.Linear(15, 4)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids).transpose(1, 2)
        return self.head(torch.cat([torch.relu(conv(x)).amax(2) for conv in self.convs], 1))


class TextConvTwoD(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.emb = pn.Embedding(20, 6)
        self.conv4, self.conv3, self.conv2 = (pn.Conv2D(1, 5, (width, 6)) for width in (4, 3, 2))
        self.fc = pn.Linear(15, 4)

    def forward(self, ids: Any) -> Any:
        x = self.emb(ids).unsqueeze(1)
        pooled = [PF.relu(conv(x)).squeeze(3).max(axis=2) for conv in (self.conv2, self.conv3, self.conv4)]
        return self.fc(paddle.concat(pooled, axis=1))


class TextConvWindows(pn.Layer):
    """Windows are cut out and multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.table = self.create_parameter([20, 6])
        self.kernels = pn.LayerList([pn.Linear(6 * width, 5) for width in (2, 3, 4)])
        self.head = pn.Linear(15, 4)

    def forward(self, ids: Any) -> Any:
        x, pooled = PF.embedding(ids, self.table), []
        for width, kernel in zip((2, 3, 4), self.kernels, strict=True):
            count = x.shape[1] - width + 1
            windows = paddle.concat([x[:, i : i + count] for i in range(width)], axis=2)
            pooled.append(PF.relu(kernel(windows)).max(axis=1))
        return self.head(paddle.concat(pooled, axis=1))


def text_two_d(w: State) -> State:
    made = {**same(w, "words", "emb"), **lin(w, "head", "fc")}
    for i, width in enumerate((2, 3, 4)):
        made[f"conv{width}.weight"] = w[f"convs.{i}.weight"].transpose(0, 2, 1)[:, None]
        made[f"conv{width}.bias"] = w[f"convs.{i}.bias"]
    return made


def text_windows(w: State) -> State:
    made = {"table": w["words.weight"], **lin(w, "head", "head")}
    for i in range(3):
        kernel = w[f"convs.{i}.weight"]
        made[f"kernels.{i}.weight"] = kernel.transpose(2, 1, 0).reshape(-1, 5)
        made[f"kernels.{i}.bias"] = w[f"convs.{i}.bias"]
    return made


class PlainConv(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = tn.Conv2d(3, 5, 3, stride=2, padding=1)
        self.deep = tn.Conv2d(5, 7, 3, bias=False)
        self.fc = tn.Linear(28, 3)

    def forward(self, image: Any) -> Any:
        return self.fc(TF.leaky_relu(self.deep(TF.leaky_relu(self.conv(image), 0.1)), 0.1).flatten(1))


class UnfoldConv(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.kernel = self.create_parameter([5, 27])
        self.shift = self.create_parameter([5, 1], is_bias=True)
        self.deep = self.create_parameter([7, 45])
        self.fc = pn.Linear(28, 3)

    def forward(self, image: Any) -> Any:
        x = paddle.matmul(self.kernel, PF.unfold(image, 3, strides=2, paddings=1)) + self.shift
        x = PF.leaky_relu(x.reshape([x.shape[0], 5, 4, 4]), 0.1)
        x = PF.leaky_relu(paddle.matmul(self.deep, PF.unfold(x, 3)), 0.1)
        return self.fc(x.flatten(1))


class FunctionalConv(pn.Layer):
    """Functional calls on bare parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.b1 = self.create_parameter([5, 3, 3, 3]), self.create_parameter([5], is_bias=True)
        self.w2 = self.create_parameter([7, 5, 3, 3])
        self.w3, self.b3 = self.create_parameter([28, 3]), self.create_parameter([3], is_bias=True)

    def forward(self, image: Any) -> Any:
        x = PF.leaky_relu(PF.conv2d(image, self.w1, self.b1, stride=2, padding=1), 0.1)
        x = PF.leaky_relu(PF.conv2d(x, self.w2), 0.1)
        return PF.linear(x.flatten(1), self.w3, self.b3)


class Depthwise(tn.Module):
    """A MobileNet block: depthwise, pointwise, batch norms in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = tn.Sequential(tn.Conv2d(4, 8, 1, bias=False), tn.BatchNorm2d(8), tn.ReLU6())
        self.depth = tn.Sequential(tn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), tn.BatchNorm2d(8), tn.ReLU6())
        self.point = tn.Sequential(tn.Conv2d(8, 4, 1, bias=False), tn.BatchNorm2d(4))

    def forward(self, x: Any) -> Any:
        return x + self.point(self.depth(self.expand(3 * x)))


class DepthwiseFlat(pn.Layer):
    """The same layers, not nested, one activation module called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.act = pn.ReLU6()
        self.bn1, self.bn2, self.bn3 = pn.BatchNorm2D(8), pn.BatchNorm2D(8), pn.BatchNorm2D(4)
        self.conv1 = pn.Conv2D(4, 8, 1, bias_attr=False)
        self.conv2 = pn.Conv2D(8, 8, 3, padding=1, groups=8, bias_attr=False)
        self.conv3 = pn.Conv2D(8, 4, 1, bias_attr=False)

    def forward(self, x: Any) -> Any:
        y = self.act(self.bn1(self.conv1(3 * x)))
        y = self.act(self.bn2(self.conv2(y)))
        return x + self.bn3(self.conv3(y))


class DepthwiseFolded(pn.Layer):
    """Batch norms folded into the convolutions before them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = pn.Conv2D(4, 8, 1), pn.Conv2D(8, 4, 1)
        self.b = pn.Conv2D(8, 8, 3, padding=1, groups=8)

    def forward(self, x: Any) -> Any:
        return x + self.c(PF.relu6(self.b(PF.relu6(self.a(3 * x)))))


def fold(w: State, conv: str, norm: str, new: str, eps: float = 1e-5) -> State:
    scale = w[f"{norm}.weight"] / np.sqrt(w[f"{norm}.running_var"] + eps)
    bias = w.get(f"{conv}.bias", 0) - w[f"{norm}.running_mean"]
    kernel = w[f"{conv}.weight"]
    return {
        f"{new}.weight": kernel * scale.reshape(-1, *[1] * (kernel.ndim - 1)),
        f"{new}.bias": bias * scale + w[f"{norm}.bias"],
    }


def depthwise_flat(w: State) -> State:
    return sames(w, {
        "expand.0": "conv1", "expand.1": "bn1", "depth.0": "conv2", "depth.1": "bn2", "point.0": "conv3",
        "point.1": "bn3",
    })  # fmt: skip


def depthwise_folded(w: State) -> State:
    names = {"expand": "a", "depth": "b", "point": "c"}
    return {k: v for old, new in names.items() for k, v in fold(w, f"{old}.0", f"{old}.1", new).items()}


class Patches(tn.Module):
    """The start of a ViT: patches by a strided convolution, class token, positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = tn.Conv2d(3, 8, 4, 4)
        self.token = tn.Parameter(0.5 * torch.randn(1, 1, 8))
        self.places = tn.Parameter(0.5 * torch.randn(1, 5, 8))
        self.norm = tn.LayerNorm(8)
        self.head = tn.Linear(8, 4)

    def forward(self, image: Any) -> Any:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(torch.tanh(x)).mean(1))


class PatchesLinear(pn.Layer):
    """Patches are reshaped and go through a linear layer; token and positions are embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.to_patch = pn.Linear(48, 8)
        self.cls = pn.Embedding(1, 8)
        self.pos = pn.Embedding(5, 8)
        self.ln = pn.LayerNorm(8)
        self.head = pn.Linear(8, 4)

    def forward(self, image: Any) -> Any:
        n = image.shape[0]
        x = image.reshape([n, 3, 2, 4, 2, 4]).transpose([0, 2, 4, 3, 5, 1]).reshape([n, 4, 48])
        first = self.cls(paddle.zeros([n, 1], "int64"))
        x = paddle.concat([first, self.to_patch(x)], axis=1) + self.pos(paddle.arange(5))
        return self.head(self.ln(PF.tanh(x)).mean(1))


class PatchesUnfold(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.places = self.create_parameter([5, 8])
        self.token = self.create_parameter([8])
        self.patch = pn.Linear(48, 8)
        self.norm = pn.LayerNorm(8)
        self.head = pn.Linear(8, 4)

    def forward(self, image: Any) -> Any:
        x = self.patch(PF.unfold(image, 4, strides=4).transpose([0, 2, 1])) + self.places[1:]
        first = (self.token + self.places[0]).expand([x.shape[0], 1, 8])
        return self.head(self.norm(PF.tanh(paddle.concat([first, x], axis=1))).mean(1))


def patches_linear(w: State) -> State:
    return {
        "to_patch.weight": w["patch.weight"].transpose(2, 3, 1, 0).reshape(48, 8),
        "to_patch.bias": w["patch.bias"],
        "cls.weight": w["token"][0],
        "pos.weight": w["places"][0],
        **same(w, "norm", "ln"),
        **lin(w, "head", "head"),
    }


def patches_unfold(w: State) -> State:
    return {
        "patch.weight": w["patch.weight"].reshape(8, 48).T,
        "patch.bias": w["patch.bias"],
        "token": w["token"][0, 0],
        "places": w["places"][0],
        **same(w, "norm"),
        **lin(w, "head", "head"),
    }


class Upsampler(tn.Module):
    """A decoder that doubles twice by transposed convolutions whose kernel is the stride."""

    def __init__(self) -> None:
        super().__init__()
        self.up1, self.up2 = tn.ConvTranspose2d(6, 5, 2, 2), tn.ConvTranspose2d(5, 3, 2, 2)

    def forward(self, x: Any) -> Any:
        return torch.sigmoid(self.up2(TF.silu(self.up1(x))))


class UpsamplerShuffle(pn.Layer):
    """A 1×1 convolution to four times the channels, then pixel shuffle; bias once per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_a, self.conv_b = pn.Conv2D(6, 20, 1, bias_attr=False), pn.Conv2D(5, 12, 1, bias_attr=False)
        self.bias_a = self.create_parameter([1, 5, 1, 1], is_bias=True)
        self.bias_b = self.create_parameter([1, 3, 1, 1], is_bias=True)

    def forward(self, x: Any) -> Any:
        x = PF.silu(PF.pixel_shuffle(self.conv_a(x), 2) + self.bias_a)
        return PF.sigmoid(PF.pixel_shuffle(self.conv_b(x), 2) + self.bias_b)


class UpsamplerEinsum(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.up = pn.LayerList([pn.Conv2DTranspose(6, 5, 2, 2)])
        self.last = self.create_parameter([5, 3, 2, 2])
        self.shift = self.create_parameter([3, 1, 1], is_bias=True)

    def forward(self, x: Any) -> Any:
        y = PF.silu(self.up[0](x))
        n, _, h, w = y.shape
        z = paddle.einsum("nchw,coij->nohiwj", y, self.last).reshape([n, 3, 2 * h, 2 * w])
        return PF.sigmoid(z + self.shift)


def upsampler_shuffle(w: State) -> State:
    made = {}
    for i, letter in (("1", "a"), ("2", "b")):
        kernel = w[f"up{i}.weight"]
        made[f"conv_{letter}.weight"] = kernel.transpose(1, 2, 3, 0).reshape(-1, kernel.shape[0], 1, 1)
        made[f"bias_{letter}"] = w[f"up{i}.bias"].reshape(1, -1, 1, 1)
    return made


def upsampler_einsum(w: State) -> State:
    return {**same(w, "up1", "up.0"), "last": w["up2.weight"], "shift": w["up2.bias"].reshape(3, 1, 1)}


class SqueezeExcite(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = tn.Conv2d(3, 8, 3, padding=1)
        self.squeeze, self.excite = tn.Linear(8, 4), tn.Linear(4, 8)
        self.head = tn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        x = TF.silu(self.conv(x))
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3))))))
        return self.head(x * gate[:, :, None, None])


class SqueezeConv(pn.Layer):
    """The gate by 1×1 convolutions on a pooled map."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pn.Conv2D(3, 8, 3, padding=1)
        self.se = pn.Sequential(
            pn.AdaptiveAvgPool2D(1), pn.Conv2D(8, 4, 1), pn.ReLU(), pn.Conv2D(4, 8, 1), pn.Sigmoid()
        )
        self.head = pn.Conv2D(8, 2, 1)

    def forward(self, x: Any) -> Any:
        x = PF.silu(self.conv(x))
        return self.head(x * self.se(x))


class SqueezeLast(pn.Layer):
    """Channels last throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.fc2, self.fc1 = pn.Linear(4, 8), pn.Linear(8, 4)
        self.stem = pn.Conv2D(3, 8, 3, padding=1, data_format="NHWC")
        self.out = pn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        x = PF.silu(self.stem(x.transpose([0, 2, 3, 1])))
        gate = PF.sigmoid(self.fc2(PF.relu(self.fc1(x.mean([1, 2], keepdim=True)))))
        return self.out(x * gate).transpose([0, 3, 1, 2])


def squeeze_conv(w: State) -> State:
    return {
        **sames(w, "conv head"),
        "se.1.weight": w["squeeze.weight"][:, :, None, None],
        "se.1.bias": w["squeeze.bias"],
        "se.3.weight": w["excite.weight"][:, :, None, None],
        "se.3.bias": w["excite.bias"],
    }


def squeeze_last(w: State) -> State:
    return {
        **same(w, "conv", "stem"),
        **lins(w, {"squeeze": "fc1", "excite": "fc2"}),
        "out.weight": w["head.weight"][:, :, 0, 0].T,
        "out.bias": w["head.bias"],
    }


class SmallUNet(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = tn.Conv2d(2, 4, 3, padding=1), tn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.middle = tn.Conv2d(8, 8, 3, padding=1)
        self.up = tn.ConvTranspose2d(8, 4, 2, 2)
        self.merge = tn.Conv2d(8, 4, 3, padding=1)
        self.out = tn.Conv2d(4, 1, 1)

    def forward(self, image: Any) -> Any:
        skip = torch.relu(self.down1(image))
        deep = torch.relu(self.middle(torch.relu(self.down2(skip))))
        return self.out(torch.relu(self.merge(torch.cat([skip, self.up(deep)], 1))))


class Stage(pn.Layer):
    """One level of a U-Net that holds the level below it."""

    def __init__(self, enter: Any, inner: Any, leave: Any) -> None:
        super().__init__()
        self.enter, self.inner, self.leave = enter, inner, leave

    def forward(self, x: Any) -> Any:
        x = PF.relu(self.enter(x))
        return self.leave(paddle.concat([x, self.inner(x)], axis=1)) if self.leave is not None else self.inner(x)


class NestedUNet(pn.Layer):
    """Levels inside levels."""

    def __init__(self) -> None:
        super().__init__()
        middle = pn.Sequential(pn.Conv2D(8, 8, 3, padding=1), pn.ReLU(), pn.Conv2DTranspose(8, 4, 2, 2))
        lower = Stage(pn.Conv2D(4, 8, 3, stride=2, padding=1), middle, None)
        merge = pn.Sequential(pn.Conv2D(8, 4, 3, padding=1), pn.ReLU(), pn.Conv2D(4, 1, 1))
        self.net = Stage(pn.Conv2D(2, 4, 3, padding=1), lower, merge)

    def forward(self, image: Any) -> Any:
        return self.net(image)


class SplitUNet(pn.Layer):
    """The merging convolution applied to skip and upsampled part by two kernels that are added."""

    def __init__(self) -> None:
        super().__init__()
        self.e0, self.e1 = pn.Conv2D(2, 4, 3, padding=1), pn.Conv2D(4, 8, 3, stride=2, padding=1)
        self.e2 = pn.Conv2D(8, 8, 3, padding=1)
        self.d0 = pn.Conv2DTranspose(8, 4, 2, 2)
        self.from_skip = pn.Conv2D(4, 4, 3, padding=1)
        self.from_deep = pn.Conv2D(4, 4, 3, padding=1, bias_attr=False)
        self.d1 = pn.Conv2D(4, 1, 1)

    def forward(self, image: Any) -> Any:
        skip = PF.relu(self.e0(image))
        deep = self.d0(PF.relu(self.e2(PF.relu(self.e1(skip)))))
        return self.d1(PF.relu(self.from_skip(skip) + self.from_deep(deep)))


def nested_unet(w: State) -> State:
    return sames(w, {
        "down1": "net.enter", "down2": "net.inner.enter", "middle": "net.inner.inner.0", "up": "net.inner.inner.2",
        "merge": "net.leave.0", "out": "net.leave.2",
    })  # fmt: skip


def split_unet(w: State) -> State:
    return {
        **sames(w, {"down1": "e0", "down2": "e1", "middle": "e2", "up": "d0", "out": "d1"}),
        "from_skip.weight": w["merge.weight"][:, :4],
        "from_skip.bias": w["merge.bias"],
        "from_deep.weight": w["merge.weight"][:, 4:],
    }


class Residual(tn.Module):
    """A ResNet block with a projected shortcut, batch norms in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = tn.Conv2d(3, 6, 3, 2, 1, bias=False), tn.BatchNorm2d(6)
        self.conv2, self.bn2 = tn.Conv2d(6, 6, 3, 1, 1, bias=False), tn.BatchNorm2d(6)
        self.down = tn.Sequential(tn.Conv2d(3, 6, 1, 2, bias=False), tn.BatchNorm2d(6))
        self.fc = tn.Linear(6, 4)

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.bn1(self.conv1(image)))
        x = torch.relu(self.bn2(self.conv2(x)) + self.down(image))
        return self.fc(x.mean((2, 3)))


class ResidualNested(pn.Layer):
    """Conv and norm in pairs; the shortcut is registered first and its parts have the names of the main path."""

    def __init__(self) -> None:
        super().__init__()
        self.shortcut = pn.Sequential(("conv", pn.Conv2D(3, 6, 1, 2, bias_attr=False)), ("norm", pn.BatchNorm2D(6)))
        self.main = pn.Sequential(
            ("second", pn.Sequential(("conv", pn.Conv2D(6, 6, 3, 1, 1, bias_attr=False)), ("norm", pn.BatchNorm2D(6)))),
            ("first", pn.Sequential(("conv", pn.Conv2D(3, 6, 3, 2, 1, bias_attr=False)), ("norm", pn.BatchNorm2D(6)))),
        )
        self.head = pn.Linear(6, 4)

    def forward(self, image: Any) -> Any:
        x = self.main.second(PF.relu(self.main.first(image)))
        return self.head(PF.relu(x + self.shortcut(image)).mean([2, 3]))


class ResidualFolded(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pn.Conv2D(3, 6, 3, 2, 1), pn.Conv2D(6, 6, 3, 1, 1)
        self.down, self.fc = pn.Conv2D(3, 6, 1, 2), pn.Linear(6, 4)

    def forward(self, image: Any) -> Any:
        x = self.conv2(PF.relu(self.conv1(image)))
        return self.fc(PF.relu(x + self.down(image)).mean([2, 3]))


def residual_nested(w: State) -> State:
    return {
        **sames(w, {
            "conv1": "main.first.conv", "bn1": "main.first.norm", "conv2": "main.second.conv",
            "bn2": "main.second.norm", "down.0": "shortcut.conv", "down.1": "shortcut.norm",
        }),
        **lin(w, "fc", "head"),
    }  # fmt: skip


def residual_folded(w: State) -> State:
    return {
        **fold(w, "conv1", "bn1", "conv1"),
        **fold(w, "conv2", "bn2", "conv2"),
        **fold(w, "down.0", "down.1", "down"),
        **lin(w, "fc", "fc"),
    }


class Branch(tn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.reduce, self.conv = tn.Conv2d(4, 3, 1), tn.Conv2d(3, 3, size, padding=size // 2)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.conv(torch.relu(self.reduce(x))))


class Inception(tn.Module):
    """Branches with the same inner names."""

    def __init__(self) -> None:
        super().__init__()
        self.b1, self.b2, self.b3 = Branch(1), Branch(3), Branch(5)
        self.mix = tn.Conv2d(9, 4, 1)

    def forward(self, x: Any) -> Any:
        return self.mix(torch.cat([self.b1(x), self.b2(x), self.b3(x)], 1))


class PaddleBranch(pn.Layer):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.conv, self.reduce = pn.Conv2D(3, 3, size, padding=size // 2), pn.Conv2D(4, 3, 1)

    def forward(self, x: Any) -> Any:
        return PF.relu(self.conv(PF.relu(self.reduce(x))))


class InceptionList(pn.Layer):
    """The branches in a list, the largest first; called in that order and put together in the other."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = pn.LayerList([PaddleBranch(size) for size in (5, 3, 1)])
        self.mix = pn.Conv2D(9, 4, 1)

    def forward(self, x: Any) -> Any:
        return self.mix(paddle.concat([branch(x) for branch in self.branches][::-1], axis=1))


class InceptionPacked(pn.Layer):
    """One 1×1 convolution reduces for all the branches."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce = pn.Conv2D(4, 9, 1)
        self.convs = pn.LayerList([pn.Conv2D(3, 3, size, padding=size // 2) for size in (1, 3, 5)])
        self.mix = pn.Conv2D(9, 4, 1)

    def forward(self, x: Any) -> Any:
        parts = PF.relu(self.reduce(x)).split(3, axis=1)
        return self.mix(paddle.concat([PF.relu(c(p)) for c, p in zip(self.convs, parts, strict=True)], axis=1))


def inception_list(w: State) -> State:
    return sames(w, {"b1": "branches.2", "b2": "branches.1", "b3": "branches.0", "mix": "mix"})


def inception_packed(w: State) -> State:
    return {
        **{
            f"reduce.{leaf}": np.concatenate([w[f"b{i}.reduce.{leaf}"] for i in (1, 2, 3)])
            for leaf in ("weight", "bias")
        },
        **sames(w, {"b1.conv": "convs.0", "b2.conv": "convs.1", "b3.conv": "convs.2", "mix": "mix"}),
    }


class OneSided(tn.Module):
    """Padding at right and bottom only, as ports from TensorFlow have it."""

    def __init__(self) -> None:
        super().__init__()
        self.pad = tn.ZeroPad2d((0, 1, 0, 1))
        self.stem, self.body = tn.Conv2d(3, 6, 3, 2), tn.Conv2d(6, 6, 3, 2)
        self.fc = tn.Linear(24, 3)

    def forward(self, image: Any) -> Any:
        x = TF.hardswish(self.stem(self.pad(image)))
        return self.fc(TF.hardswish(self.body(self.pad(x))).flatten(1))


class OneSidedInside(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = (pn.Conv2D(c, 6, 3, 2, padding=[0, 1, 0, 1]) for c in (3, 6))
        self.fc = pn.Linear(24, 3)

    def forward(self, image: Any) -> Any:
        x = PF.hardswish(self.stem(image))
        return self.fc(PF.hardswish(self.body(x)).flatten(1))


class OneSidedSame(pn.Layer):
    """The framework's own "SAME" for these sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer2, self.layer1 = pn.Conv2D(6, 6, 3, 2, padding="SAME"), pn.Conv2D(3, 6, 3, 2, padding="SAME")
        self.classifier = pn.Linear(24, 3)

    def forward(self, image: Any) -> Any:
        x = self.layer1(image)
        x = self.layer2(x * PF.relu6(x + 3) / 6)
        return self.classifier((x * PF.relu6(x + 3) / 6).flatten(1))


class ChannelsFirst(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = tn.Conv2d(3, 8, 3, padding=1)
        self.depth = tn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = tn.BatchNorm2d(8)
        self.pool = tn.MaxPool2d(2)
        self.head = tn.Linear(8, 5)

    def forward(self, image: Any) -> Any:
        x = self.pool(torch.relu(self.stem(image)))
        return self.head(torch.relu(self.norm(self.depth(x))).mean((2, 3)))


class ChannelsLast(pn.Layer):
    """The whole network works on channels-last tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = pn.Conv2D(3, 8, 3, padding=1, data_format="NHWC")
        self.depth = pn.Conv2D(8, 8, 3, padding=1, groups=8, data_format="NHWC")
        self.norm = pn.BatchNorm2D(8, data_format="NHWC")
        self.pool = pn.MaxPool2D(2, data_format="NHWC")
        self.head = pn.Linear(8, 5)

    def forward(self, image: Any) -> Any:
        x = self.pool(PF.relu(self.stem(image.transpose([0, 2, 3, 1]))))
        return self.head(PF.relu(self.norm(self.depth(x))).mean([1, 2]))


class ChannelsBetween(pn.Layer):
    """Convolutions keep channels first, everything between them has channels last; names say nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.l0, self.l1 = pn.Conv2D(3, 8, 3, padding=1), pn.Conv2D(8, 8, 3, padding=1, groups=8)
        self.l2, self.l3 = pn.BatchNorm1D(8, data_format="NLC"), pn.Linear(8, 5)

    def forward(self, image: Any) -> Any:
        x = PF.relu(self.l0(image).transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2])
        x = self.l1(PF.max_pool2d(x, 2))
        return self.l3(PF.relu(self.l2(x.flatten(2).transpose([0, 2, 1]))).mean(1))


class SuperResolution(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = tn.Conv2d(1, 6, 5, padding=2)
        self.blocks = tn.ModuleList([tn.Conv2d(6, 6, 3, padding=1) for _ in range(3)])
        self.tail = tn.Conv2d(6, 4, 3, padding=1)

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.head(image))
        for block in self.blocks:
            x = x + 0.5 * torch.relu(block(x))
        return TF.pixel_shuffle(self.tail(x), 2)


class SuperResolutionReshape(pn.Layer):
    """Pixel shuffle by hand; the blocks have names whose digits run backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.block1, self.block2, self.block3 = (pn.Conv2D(6, 6, 3, padding=1) for _ in range(3))
        self.enter, self.leave = pn.Conv2D(1, 6, 5, padding=2), pn.Conv2D(6, 4, 3, padding=1)

    def forward(self, image: Any) -> Any:
        x = PF.relu(self.enter(image))
        for block in (self.block3, self.block2, self.block1):
            x = x + PF.relu(block(x)) * 0.5
        x = self.leave(x)
        n, _, h, w = x.shape
        return x.reshape([n, 2, 2, h, w]).transpose([0, 3, 1, 4, 2]).reshape([n, 1, 2 * h, 2 * w])


class SuperResolutionSequential(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.m = pn.Sequential(*(pn.Conv2D(i, o, k, padding=k // 2) for i, o, k in
                                 ((1, 6, 5), (6, 6, 3), (6, 6, 3), (6, 6, 3), (6, 4, 3))))  # fmt: skip
        self.shuffle = pn.PixelShuffle(2)

    def forward(self, image: Any) -> Any:
        x = PF.relu(self.m[0](image))
        for i in (1, 2, 3):
            x = x + 0.5 * PF.relu(self.m[i](x))
        return self.shuffle(self.m[4](x))


class Mixer(tn.Module):
    """An MLP mixer block: linear layers over tokens, then over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = tn.LayerNorm(6), tn.LayerNorm(6)
        self.tokens = tn.Sequential(tn.Linear(9, 12), tn.GELU(), tn.Linear(12, 9))
        self.channels = tn.Sequential(tn.Linear(6, 12), tn.GELU(), tn.Linear(12, 6))

    def forward(self, x: Any) -> Any:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class MixerConv(pn.Layer):
    """Tokens are mixed by 1-D convolutions, for which tokens are channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = pn.LayerNorm(6), pn.LayerNorm(6)
        self.tokens = pn.Sequential(pn.Conv1D(9, 12, 1), pn.GELU(), pn.Conv1D(12, 9, 1))
        self.channels = pn.Sequential(pn.Linear(6, 12), pn.GELU(), pn.Linear(12, 6))

    def forward(self, x: Any) -> Any:
        x = x + self.tokens(self.norm1(x))
        return x + self.channels(self.norm2(x))


class MixerEinsum(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.ln_b, self.ln_a = pn.LayerNorm(6), pn.LayerNorm(6)
        self.w_in, self.w_out = self.create_parameter([12, 9]), self.create_parameter([9, 12])
        self.b_in, self.b_out = (self.create_parameter([n, 1], is_bias=True) for n in (12, 9))
        self.act = pn.GELU()
        self.fc_a, self.fc_b = pn.Linear(6, 12), pn.Linear(12, 6)

    def forward(self, x: Any) -> Any:
        y = paddle.einsum("ht,btc->bhc", self.w_in, self.ln_a(x)) + self.b_in
        x = x + paddle.einsum("th,bhc->btc", self.w_out, self.act(y)) + self.b_out
        return x + self.fc_b(self.act(self.fc_a(self.ln_b(x))))


def mixer_conv(w: State) -> State:
    return {
        **sames(w, "norm1 norm2"),
        **lins(w, "channels.0 channels.2"),
        **{f"tokens.{i}.weight": w[f"tokens.{i}.weight"][:, :, None] for i in (0, 2)},
        **{f"tokens.{i}.bias": w[f"tokens.{i}.bias"] for i in (0, 2)},
    }


def mixer_einsum(w: State) -> State:
    return {
        **sames(w, {"norm1": "ln_a", "norm2": "ln_b"}),
        **lins(w, {"channels.0": "fc_a", "channels.2": "fc_b"}),
        "w_in": w["tokens.0.weight"],
        "b_in": w["tokens.0.bias"][:, None],
        "w_out": w["tokens.2.weight"],
        "b_out": w["tokens.2.bias"][:, None],
    }


class Smoothed(tn.Module):
    """A convolution in the sense of mathematics: kernels are stored turned round on some sides."""

    def __init__(self) -> None:
        super().__init__()
        self.blur, self.mix = tn.Conv1d(3, 4, 3, padding=1), tn.Conv1d(4, 4, 5, padding=2, bias=False)
        self.out = tn.Linear(4, 2)

    def forward(self, series: Any) -> Any:
        return self.out(torch.tanh(self.mix(torch.tanh(self.blur(series)))).mean(2))


class SmoothedTransposed(pn.Layer):
    """As transposed convolutions of stride 1, whose kernels are turned round and exchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.blur = pn.Conv1DTranspose(3, 4, 3, padding=1)
        self.mix = pn.Conv1DTranspose(4, 4, 5, padding=2, bias_attr=False)
        self.out = pn.Linear(4, 2)

    def forward(self, series: Any) -> Any:
        return self.out(PF.tanh(self.mix(PF.tanh(self.blur(series)))).mean(2))


class SmoothedTaps(pn.Layer):
    """The newest tap first: a sum over delays of shifted series."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.blur = self.create_parameter([5, 4, 4]), self.create_parameter([3, 3, 4])
        self.bias, self.out = self.create_parameter([4], is_bias=True), pn.Linear(4, 2)

    def convolve(self, x: Any, taps: Any) -> Any:
        n, half = x.shape[1], taps.shape[0] // 2
        padded = PF.pad(x, [half, half], data_format="NLC")
        last = taps.shape[0] - 1
        return sum(padded[:, last - delay : last - delay + n] @ taps[delay] for delay in range(last + 1))

    def forward(self, series: Any) -> Any:
        x = PF.tanh(self.convolve(series.transpose([0, 2, 1]), self.blur) + self.bias)
        return self.out(PF.tanh(self.convolve(x, self.mix)).mean(1))


def smoothed_transposed(w: State) -> State:
    made = {f"{name}.weight": w[f"{name}.weight"].swapaxes(0, 1)[:, :, ::-1] for name in ("blur", "mix")}
    return {**made, "blur.bias": w["blur.bias"], **lin(w, "out", "out")}


def smoothed_taps(w: State) -> State:
    made = {name: w[f"{name}.weight"].transpose(2, 1, 0)[::-1] for name in ("blur", "mix")}
    return {**made, "bias": w["blur.bias"], **lin(w, "out", "out")}


PORTS = (
    Port(
        "pad_outside", PadOutside,
        (
            Formulation("inside", PadInside, lambda w: {**sames(w, "first second"), **lin(w, "head", "head")}),
            Formulation(
                "layers", PadLayers,
                lambda w: {**sames(w, {"first": "body.1", "second": "body.3"}), **lin(w, "head", "out")},
                loss=paddle_entropy_by_hand,
            ),
        ),
        {"image": floats(2, 3, 9, 9)}, ints(4, 2), ENTROPY, swap=True,
    ),
    Port(
        "causal_chomp", CausalChomp,
        (
            Formulation("left", CausalLeft, lambda w: {**sames(w, "convs short"), **lin(w, "head", "head")}),
            Formulation("two_d", CausalTwoD, causal_two_d),
        ),
        {"series": floats(3, 4, 12)}, floats(3, 3), SQUARE, swap=True,
    ),
    Port(
        "gated_dilated", GatedDilated,
        (Formulation("packed", GatedPacked, gated_packed), Formulation("shifted", GatedShifted, gated_shifted)),
        {"wave": floats(2, 2, 14)}, floats(2, 3, 14), SQUARE,
    ),
    Port(
        "point_conv", PointConv,
        (Formulation("linear", PointLinear, point_linear), Formulation("matmul", PointMatmul, point_matmul)),
        {"x": floats(2, 4, 3, 5)}, floats(2, 4, 3, 5), SQUARE, mode="eval", swap=True,
    ),
    Port(
        "text_conv", TextConv,
        (Formulation("two_d", TextConvTwoD, text_two_d), Formulation("windows", TextConvWindows, text_windows)),
        {"ids": ints(20, 3, 9)}, ints(4, 3), ENTROPY,
    ),
    Port(
        "plain_conv", PlainConv,
        (
            Formulation("unfold", UnfoldConv, lambda w: {
                "kernel": w["conv.weight"].reshape(5, 27), "shift": w["conv.bias"][:, None],
                "deep": w["deep.weight"].reshape(7, 45), **lin(w, "fc", "fc"),
            }),
            Formulation("functional", FunctionalConv, lambda w: {
                "w1": w["conv.weight"], "b1": w["conv.bias"], "w2": w["deep.weight"], "w3": w["fc.weight"].T,
                "b3": w["fc.bias"],
            }),
        ),
        {"image": floats(2, 3, 8, 8)}, ints(3, 2), ENTROPY, swap=True,
    ),
    Port(
        "depthwise", Depthwise,
        (Formulation("flat", DepthwiseFlat, depthwise_flat), Formulation("folded", DepthwiseFolded, depthwise_folded)),
        {"x": floats(2, 4, 6, 6)}, mode="eval",
    ),
    Port(
        "patches", Patches,
        (Formulation("linear", PatchesLinear, patches_linear), Formulation("unfold", PatchesUnfold, patches_unfold)),
        {"image": floats(2, 3, 8, 8)}, ints(4, 2), ENTROPY, swap=True,
    ),
    Port(
        "upsampler", Upsampler,
        (
            Formulation("shuffle", UpsamplerShuffle, upsampler_shuffle),
            Formulation("einsum", UpsamplerEinsum, upsampler_einsum),
        ),
        {"x": floats(2, 6, 3, 3)}, floats(2, 3, 12, 12), SQUARE,
    ),
    Port(
        "squeeze_excite", SqueezeExcite,
        (Formulation("conv", SqueezeConv, squeeze_conv), Formulation("last", SqueezeLast, squeeze_last)),
        {"x": floats(2, 3, 6, 6)}, floats(2, 2, 6, 6), SQUARE, swap=True,
    ),
    Port(
        "small_unet", SmallUNet,
        (Formulation("nested", NestedUNet, nested_unet), Formulation("split", SplitUNet, split_unet)),
        {"image": floats(2, 2, 8, 8)}, floats(2, 1, 8, 8), SQUARE, swap=True,
    ),
    Port(
        "residual", Residual,
        (
            Formulation("nested", ResidualNested, residual_nested),
            Formulation("folded", ResidualFolded, residual_folded),
        ),
        {"image": floats(2, 3, 8, 8)}, mode="eval",
    ),
    Port(
        "inception", Inception,
        (Formulation("list", InceptionList, inception_list), Formulation("packed", InceptionPacked, inception_packed)),
        {"x": floats(2, 4, 5, 5)}, floats(2, 4, 5, 5), SQUARE, swap=True,
    ),
    Port(
        "one_sided", OneSided,
        (
            Formulation("inside", OneSidedInside, lambda w: {**sames(w, "stem body"), **lin(w, "fc", "fc")}),
            Formulation("same", OneSidedSame, lambda w: {
                **sames(w, {"stem": "layer1", "body": "layer2"}), **lin(w, "fc", "classifier"),
            }),
        ),
        {"image": floats(2, 3, 8, 8)}, ints(3, 2), ENTROPY,
    ),
    Port(
        "channels_first", ChannelsFirst,
        (
            Formulation("last", ChannelsLast, lambda w: {**sames(w, "stem depth norm"), **lin(w, "head", "head")}),
            Formulation("between", ChannelsBetween, lambda w: {
                **sames(w, {"stem": "l0", "depth": "l1", "norm": "l2"}), **lin(w, "head", "l3"),
            }),
        ),
        {"image": floats(2, 3, 8, 8)}, ints(5, 2), ENTROPY, mode="eval",
    ),
    Port(
        "super_resolution", SuperResolution,
        (
            Formulation("reshape", SuperResolutionReshape, lambda w: sames(w, {
                "head": "enter", "blocks.0": "block3", "blocks.1": "block2", "blocks.2": "block1", "tail": "leave",
            })),
            Formulation("sequential", SuperResolutionSequential, lambda w: sames(w, {
                "head": "m.0", "blocks.0": "m.1", "blocks.1": "m.2", "blocks.2": "m.3", "tail": "m.4",
            })),
            Formulation(
                "backwards",
                lambda: reregistered(renamed(SuperResolutionSequential, m="q7")()),
                lambda w: sames(w, {
                    "head": "q7.0", "blocks.0": "q7.1", "blocks.1": "q7.2", "blocks.2": "q7.3", "tail": "q7.4",
                }),
            ),
        ),
        {"image": floats(2, 1, 6, 6)}, floats(2, 1, 12, 12), SQUARE,
    ),
    Port(
        "mixer", Mixer,
        (Formulation("conv", MixerConv, mixer_conv), Formulation("einsum", MixerEinsum, mixer_einsum)),
        {"x": floats(2, 9, 6)}, floats(2, 9, 6), SQUARE, swap=True,
    ),
    Port(
        "smoothed", Smoothed,
        (
            Formulation("transposed", SmoothedTransposed, smoothed_transposed),
            Formulation("taps", SmoothedTaps, smoothed_taps),
        ),
        {"series": floats(2, 3, 8)}, floats(2, 2), SQUARE,
    ),
)  # fmt: skip
