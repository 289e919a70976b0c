"""Norms: by hand, functional, folded, with casts to float32 inside, weight norm, cosine layers, crossing digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pn
from torch import nn as tn

from ports.port import ENTROPY, SQUARE, Formulation, Port, State, floats, ints, lin, lins, renamed, same, sames


class LayerNormed(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = tn.Linear(5, 8), tn.Linear(8, 8), tn.Linear(8, 3)
        self.norm1, self.norm2 = tn.LayerNorm(8), tn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        x = self.norm1(TF.gelu(self.fc1(x)))
        return self.fc3(self.norm2(x + TF.gelu(self.fc2(x))))


class HandNorm(pn.Layer):
    def __init__(self, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.gain, self.shift = self.create_parameter([size]), self.create_parameter([size], is_bias=True)

    def forward(self, x: Any) -> Any:
        mean = x.mean(-1, keepdim=True)
        spread = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / paddle.sqrt(spread + self.eps) * self.gain + self.shift


class LayerNormHand(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = pn.Linear(5, 8), pn.Linear(8, 8), pn.Linear(8, 3)
        self.norm1, self.norm2 = HandNorm(8), HandNorm(8)

    def forward(self, x: Any) -> Any:
        x = self.norm1(PF.gelu(self.fc1(x)))
        return self.fc3(self.norm2(x + PF.gelu(self.fc2(x))))


class LayerNormFunctional(pn.Layer):
    """Everything functional; parameters in one list, used in an order of their own."""

    def __init__(self) -> None:
        super().__init__()
        shapes = ([8], [8], [8, 3], [3], [8, 8], [8], [5, 8], [8], [8], [8])
        self.p = pn.ParameterList([self.create_parameter(s, is_bias=len(s) == 1) for s in shapes])

    def forward(self, x: Any) -> Any:
        p = self.p
        x = PF.layer_norm(PF.gelu(PF.linear(x, p[6], p[7])), [8], p[8], p[9], 1e-5)
        x = PF.layer_norm(x + PF.gelu(PF.linear(x, p[4], p[5])), [8], p[0], p[1], 1e-5)
        return PF.linear(x, p[2], p[3])


def hand_norm(w: State, old: str, new: str) -> State:
    return {f"{new}.gain": w[f"{old}.weight"], f"{new}.shift": w[f"{old}.bias"]}


def layer_norm_functional(w: State) -> State:
    layers = ("norm2", "fc3", "fc2", "fc1", "norm1")
    names = [f"{layer}.{leaf}" for layer in layers for leaf in ("weight", "bias")]
    return {f"p.{i}": w[name].T if w[name].ndim == 2 else w[name] for i, name in enumerate(names)}


class Rms(tn.Module):
    """Llama's: the mean square in float32, then back."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = tn.Parameter(torch.ones(size))

    def forward(self, x: Any) -> Any:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class RmsBlocks(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = tn.Embedding(12, 8)
        self.norms = tn.ModuleList([Rms(8), Rms(8)])
        self.layers = tn.ModuleList([tn.Linear(8, 8, bias=False), tn.Linear(8, 8, bias=False)])
        self.final = Rms(8)
        self.head = tn.Linear(8, 12, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + TF.silu(layer(norm(x)))
        return self.head(self.final(x)).flatten(0, 1)


class PaddleRms(pn.Layer):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = self.create_parameter([size], default_initializer=pn.initializer.Constant(1.0))

    def forward(self, x: Any) -> Any:
        wide = x.astype("float32")
        wide = wide * paddle.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return wide.astype(x.dtype) * self.weight


class RmsUpcast(pn.Layer):
    def __init__(self, kind: Any = PaddleRms) -> None:
        super().__init__()
        self.embed = pn.Embedding(12, 8)
        self.blocks = pn.LayerList(
            [pn.LayerDict({"norm": kind(8), "fc": pn.Linear(8, 8, bias_attr=False)}) for _ in range(2)]
        )
        self.final, self.head = kind(8), pn.Linear(8, 12, bias_attr=False)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for block in self.blocks:
            x = x + PF.silu(block["fc"](block["norm"](x)))
        return self.head(self.final(x)).flatten(0, 1)


class RmsByNorm(PaddleRms):
    """By the length of the vector, in float32 as well."""

    def forward(self, x: Any) -> Any:
        wide = x.astype("float32")
        below = paddle.sqrt((wide * wide).sum(-1, keepdim=True) / x.shape[-1] + 1e-6)
        return (wide / below).astype(x.dtype) * self.weight


class RmsFlat(pn.Layer):
    """Names that say nothing; the gains are bare parameters, registered backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.g2, self.g1, self.g0 = (self.create_parameter([8]) for _ in range(3))
        self.m0, self.m1 = self.create_parameter([8, 8]), self.create_parameter([8, 8])
        self.table, self.last = self.create_parameter([12, 8]), self.create_parameter([12, 8])

    def scaled(self, x: Any, gain: Any) -> Any:
        wide = x.astype("float32")
        return (wide * paddle.rsqrt(paddle.mean(wide * wide, -1, keepdim=True) + 1e-6)).astype(x.dtype) * gain

    def forward(self, ids: Any) -> Any:
        x = PF.embedding(ids, self.table)
        x = x + PF.silu(self.scaled(x, self.g0) @ self.m0)
        x = x + PF.silu(self.scaled(x, self.g1) @ self.m1)
        return paddle.matmul(self.scaled(x, self.g2), self.last, transpose_y=True).flatten(0, 1)


def rms_upcast(w: State) -> State:
    names = {"norms.0": "blocks.0.norm", "norms.1": "blocks.1.norm", "embed": "embed", "final": "final"}
    return {**sames(w, names), **lins(w, {"layers.0": "blocks.0.fc", "layers.1": "blocks.1.fc", "head": "head"})}


def rms_flat(w: State) -> State:
    return {
        "g0": w["norms.0.weight"], "g1": w["norms.1.weight"], "g2": w["final.weight"], "m0": w["layers.0.weight"].T,
        "m1": w["layers.1.weight"].T, "table": w["embed.weight"], "last": w["head.weight"],
    }  # fmt: skip


class BatchNormed(tn.Module):
    """Batch norms in evaluation mode behind linear layers and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn1 = tn.Conv1d(3, 6, 3, padding=1), tn.BatchNorm1d(6)
        self.fc, self.bn2 = tn.Linear(6, 6), tn.BatchNorm1d(6, eps=1e-3)
        self.out = tn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        x = TF.silu(self.bn1(self.conv(x))).mean(2)
        return self.out(TF.silu(self.bn2(self.fc(x))))


class HandBatchNorm(pn.Layer):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.gamma, self.beta = self.create_parameter([size]), self.create_parameter([size], is_bias=True)
        self.register_buffer("mean", paddle.zeros([size]))
        self.register_buffer("var", paddle.ones([size]))

    def forward(self, x: Any) -> Any:
        scale = self.gamma * paddle.rsqrt(self.var + self.eps)
        shift = self.beta - self.mean * scale
        return x * scale.unsqueeze(-1) + shift.unsqueeze(-1) if x.ndim == 3 else x * scale + shift


class BatchNormHand(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.bn2, self.bn1 = HandBatchNorm(6, 1e-3), HandBatchNorm(6, 1e-5)
        self.conv, self.fc, self.out = pn.Conv1D(3, 6, 3, padding=1), pn.Linear(6, 6), pn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        x = PF.silu(self.bn1(self.conv(x))).mean(2)
        return self.out(PF.silu(self.bn2(self.fc(x))))


class BatchNormFunctional(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc, self.out = pn.Conv1D(3, 6, 3, padding=1), pn.Linear(6, 6), pn.Linear(6, 2)
        for name in ("first", "second"):
            setattr(self, f"{name}_scale", self.create_parameter([6]))
            setattr(self, f"{name}_shift", self.create_parameter([6], is_bias=True))
            self.register_buffer(f"{name}_mean", paddle.zeros([6]))
            self.register_buffer(f"{name}_var", paddle.ones([6]))

    def forward(self, x: Any) -> Any:
        x = PF.batch_norm(
            self.conv(x), self.first_mean, self.first_var, self.first_scale, self.first_shift, epsilon=1e-5
        )
        x = PF.silu(x).mean(2)
        x = PF.batch_norm(
            self.fc(x), self.second_mean, self.second_var, self.second_scale, self.second_shift, epsilon=1e-3
        )
        return self.out(PF.silu(x))


class BatchNormFolded(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc, self.out = pn.Conv1D(3, 6, 3, padding=1), pn.Linear(6, 6), pn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        return self.out(PF.silu(self.fc(PF.silu(self.conv(x)).mean(2))))


def batch_hand(w: State) -> State:
    made = {**same(w, "conv"), **lins(w, "fc out")}
    for name in ("bn1", "bn2"):
        for old, new in (("weight", "gamma"), ("bias", "beta"), ("running_mean", "mean"), ("running_var", "var")):
            made[f"{name}.{new}"] = w[f"{name}.{old}"]
    return made


def batch_functional(w: State) -> State:
    made = {**same(w, "conv"), **lins(w, "fc out")}
    for name, long in (("bn1", "first"), ("bn2", "second")):
        for old, new in (("weight", "scale"), ("bias", "shift"), ("running_mean", "mean"), ("running_var", "var")):
            made[f"{long}_{new}"] = w[f"{name}.{old}"]
    return made


def batch_folded(w: State) -> State:
    made = lin(w, "out", "out")
    for layer, norm, eps in (("conv", "bn1", 1e-5), ("fc", "bn2", 1e-3)):
        scale = w[f"{norm}.weight"] / np.sqrt(w[f"{norm}.running_var"] + eps)
        kernel = w[f"{layer}.weight"]
        whole = kernel * scale.reshape(-1, *[1] * (kernel.ndim - 1))
        made[f"{layer}.weight"] = whole.T if layer == "fc" else whole
        made[f"{layer}.bias"] = (w[f"{layer}.bias"] - w[f"{norm}.running_mean"]) * scale + w[f"{norm}.bias"]
    return made


class GroupNormed(tn.Module):
    """A diffusion model's residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.conv1 = tn.GroupNorm(2, 4, eps=1e-6), tn.Conv2d(4, 6, 3, padding=1)
        self.time = tn.Linear(5, 6)
        self.norm2, self.conv2 = tn.GroupNorm(3, 6, eps=1e-6), tn.Conv2d(6, 6, 3, padding=1)
        self.skip = tn.Conv2d(4, 6, 1)

    def forward(self, x: Any, t: Any) -> Any:
        h = self.conv1(TF.silu(self.norm1(x))) + self.time(TF.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(TF.silu(self.norm2(h)))


class HandGroupNorm(pn.Layer):
    def __init__(self, groups: int, size: int) -> None:
        super().__init__()
        self.groups = groups
        self.weight = self.create_parameter([size, 1, 1])
        self.bias = self.create_parameter([size, 1, 1], is_bias=True)

    def forward(self, x: Any) -> Any:
        y = x.reshape([x.shape[0], self.groups, -1])
        y = (y - y.mean(2, keepdim=True)) / paddle.sqrt(y.var(2, unbiased=False, keepdim=True) + 1e-6)
        return y.reshape(x.shape) * self.weight + self.bias


class GroupNormHand(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.conv1 = HandGroupNorm(2, 4), pn.Conv2D(4, 6, 3, padding=1)
        self.time = pn.Linear(5, 6)
        self.norm2, self.conv2 = HandGroupNorm(3, 6), pn.Conv2D(6, 6, 3, padding=1)
        self.skip = pn.Linear(4, 6)

    def forward(self, x: Any, t: Any) -> Any:
        h = self.conv1(PF.silu(self.norm1(x))) + self.time(PF.silu(t)).unsqueeze([2, 3])
        return self.skip(x.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2]) + self.conv2(PF.silu(self.norm2(h)))


class GroupNormNested(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.nin = pn.Conv2D(4, 6, 1)
        self.out_layers = pn.Sequential(pn.GroupNorm(3, 6, epsilon=1e-6), pn.Silu(), pn.Conv2D(6, 6, 3, padding=1))
        self.emb_layers = pn.Sequential(pn.Silu(), pn.Linear(5, 6))
        self.in_layers = pn.Sequential(pn.GroupNorm(2, 4, epsilon=1e-6), pn.Silu(), pn.Conv2D(4, 6, 3, padding=1))

    def forward(self, x: Any, t: Any) -> Any:
        h = self.in_layers(x) + self.emb_layers(t).reshape([-1, 6, 1, 1])
        return self.nin(x) + self.out_layers(h)


def group_hand(w: State) -> State:
    return {
        **sames(w, "conv1 conv2"),
        **lin(w, "time", "time"),
        **{
            f"{n}.{leaf}": w[f"{n}.{leaf}"].reshape(-1, 1, 1) for n in ("norm1", "norm2") for leaf in ("weight", "bias")
        },
        "skip.weight": w["skip.weight"][:, :, 0, 0].T,
        "skip.bias": w["skip.bias"],
    }


def group_nested(w: State) -> State:
    return {
        **sames(w, {
            "norm1": "in_layers.0", "conv1": "in_layers.2", "norm2": "out_layers.0", "conv2": "out_layers.2",
            "skip": "nin",
        }),
        **lin(w, "time", "emb_layers.1"),
    }  # fmt: skip


class InstanceNormed(tn.Module):
    """A style transfer network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.in1 = tn.Conv2d(3, 4, 3), tn.InstanceNorm2d(4, affine=True)
        self.conv2, self.in2 = tn.Conv2d(4, 4, 3), tn.InstanceNorm2d(4, affine=True)
        self.pad = tn.ReflectionPad2d(1)
        self.out = tn.Conv2d(4, 3, 1)

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.in1(self.conv1(self.pad(image))))
        x = x + self.in2(self.conv2(self.pad(x)))
        return torch.tanh(self.out(x))


class InstanceNormFramework(pn.Layer):
    """paddle calls the gain of this norm `scale`; the padding mode is the convolution's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.in1 = pn.Conv2D(3, 4, 3, padding=1, padding_mode="reflect"), pn.InstanceNorm2D(4)
        self.conv2, self.in2 = pn.Conv2D(4, 4, 3, padding=1, padding_mode="reflect"), pn.InstanceNorm2D(4)
        self.out = pn.Conv2D(4, 3, 1)

    def forward(self, image: Any) -> Any:
        x = PF.relu(self.in1(self.conv1(image)))
        return PF.tanh(self.out(x + self.in2(self.conv2(x))))


class InstanceNormGroups(pn.Layer):
    """As a group norm with one channel to a group, and once by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = pn.LayerList([pn.Conv2D(4, 3, 1), pn.Conv2D(4, 4, 3), pn.GroupNorm(4, 4), pn.Conv2D(3, 4, 3)])
        self.gain, self.shift = (self.create_parameter([1, 4, 1, 1], is_bias=True) for _ in range(2))

    def forward(self, image: Any) -> Any:
        pad = pn.Pad2D(1, mode="reflect")
        x = PF.relu(self.layers[2](self.layers[3](pad(image))))
        y = self.layers[1](pad(x))
        mean, var = y.mean([2, 3], keepdim=True), y.var([2, 3], unbiased=False, keepdim=True)
        y = (y - mean) * paddle.rsqrt(var + 1e-5) * self.gain + self.shift
        return PF.tanh(self.layers[0](x + y))


def instance_framework(w: State) -> State:
    made = sames(w, "conv1 conv2 out")
    for name in ("in1", "in2"):
        made[f"{name}.scale"], made[f"{name}.bias"] = w[f"{name}.weight"], w[f"{name}.bias"]
    return made


def instance_groups(w: State) -> State:
    return {
        **sames(w, {"conv1": "layers.3", "in1": "layers.2", "conv2": "layers.1", "out": "layers.0"}),
        "gain": w["in2.weight"].reshape(1, 4, 1, 1),
        "shift": w["in2.bias"].reshape(1, 4, 1, 1),
    }


class ConvNext(tn.Module):
    """ConvNeXt block: depthwise, norm over channels, two linear layers, layer scale."""

    def __init__(self) -> None:
        super().__init__()
        self.dw = tn.Conv2d(6, 6, 5, padding=2, groups=6)
        self.norm = tn.LayerNorm(6, eps=1e-6)
        self.pw1, self.pw2 = tn.Linear(6, 12), tn.Linear(12, 6)
        self.gamma = tn.Parameter(torch.full((6,), 0.1))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pw2(TF.gelu(self.pw1(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNextFirst(pn.Layer):
    """Channels first throughout: the norm by hand over axis 1, 1×1 convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.dwconv = pn.Conv2D(6, 6, 5, padding=2, groups=6)
        self.weight, self.bias = self.create_parameter([6]), self.create_parameter([6], is_bias=True)
        self.pwconv1, self.pwconv2 = pn.Conv2D(6, 12, 1), pn.Conv2D(12, 6, 1)
        self.layer_scale = self.create_parameter([6, 1, 1])

    def forward(self, x: Any) -> Any:
        y = self.dwconv(x)
        centred = y - y.mean(1, keepdim=True)
        y = centred / paddle.sqrt(centred.pow(2).mean(1, keepdim=True) + 1e-6)
        y = y * self.weight.reshape([6, 1, 1]) + self.bias.reshape([6, 1, 1])
        return x + self.layer_scale * self.pwconv2(PF.gelu(self.pwconv1(y)))


class ConvNextMerged(pn.Layer):
    """Layer scale multiplied into the second linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = pn.Sequential(pn.LayerNorm(6, epsilon=1e-6), pn.Linear(6, 12), pn.GELU(), pn.Linear(12, 6))
        self.conv = pn.Conv2D(6, 6, 5, padding=2, groups=6)

    def forward(self, x: Any) -> Any:
        return x + self.mlp(self.conv(x).transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2])


def convnext_first(w: State) -> State:
    return {
        **same(w, "dw", "dwconv"),
        "weight": w["norm.weight"],
        "bias": w["norm.bias"],
        **{f"pwconv{i}.weight": w[f"pw{i}.weight"][:, :, None, None] for i in (1, 2)},
        **{f"pwconv{i}.bias": w[f"pw{i}.bias"] for i in (1, 2)},
        "layer_scale": w["gamma"].reshape(6, 1, 1),
    }


def convnext_merged(w: State) -> State:
    return {
        **sames(w, {"dw": "conv", "norm": "mlp.0"}),
        **lin(w, "pw1", "mlp.1"),
        "mlp.3.weight": w["pw2.weight"].T * w["gamma"],
        "mlp.3.bias": w["pw2.bias"] * w["gamma"],
    }


class WeightNormed(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = tn.utils.parametrizations.weight_norm(tn.Conv1d(3, 6, 3, padding=1))
        self.conv2 = tn.utils.parametrizations.weight_norm(tn.Conv1d(6, 4, 3, padding=1))
        self.fc = tn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.fc(TF.elu(self.conv2(TF.elu(self.conv1(x)))).mean(2))


class WeightNormRemoved(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pn.Conv1D(3, 6, 3, padding=1), pn.Conv1D(6, 4, 3, padding=1)
        self.fc = pn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.fc(PF.elu(self.conv2(PF.elu(self.conv1(x)))).mean(2))


class WeightNormHand(pn.Layer):
    """Direction and length are parameters; the kernel is made at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.v1, self.v2 = self.create_parameter([6, 3, 3]), self.create_parameter([4, 6, 3])
        self.g1, self.g2 = self.create_parameter([6]), self.create_parameter([4])
        self.b1, self.b2 = self.create_parameter([6], is_bias=True), self.create_parameter([4], is_bias=True)
        self.fc = pn.Linear(4, 2)

    def kernel(self, v: Any, g: Any) -> Any:
        return v * (g / paddle.sqrt((v * v).sum([1, 2]))).reshape([-1, 1, 1])

    def forward(self, x: Any) -> Any:
        x = PF.elu(PF.conv1d(x, self.kernel(self.v1, self.g1), self.b1, padding=1))
        return self.fc(PF.elu(PF.conv1d(x, self.kernel(self.v2, self.g2), self.b2, padding=1)).mean(2))


def weight_removed(w: State) -> State:
    made = lin(w, "fc", "fc")
    for name in ("conv1", "conv2"):
        g, v = (w[f"{name}.parametrizations.weight.original{i}"] for i in (0, 1))
        made[f"{name}.weight"] = g * v / np.sqrt((v**2).sum((1, 2), keepdims=True))
        made[f"{name}.bias"] = w[f"{name}.bias"]
    return made


def weight_hand(w: State) -> State:
    made = lin(w, "fc", "fc")
    for i in "12":
        made[f"g{i}"] = w[f"conv{i}.parametrizations.weight.original0"][:, 0, 0]
        made[f"v{i}"] = w[f"conv{i}.parametrizations.weight.original1"]
        made[f"b{i}"] = w[f"conv{i}.bias"]
    return made


class CosineHead(tn.Module):
    """ArcFace's start: a cosine between features and class vectors, scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.body = tn.Sequential(tn.Linear(6, 8), tn.PReLU(8), tn.Linear(8, 5))
        self.centres = tn.Parameter(torch.randn(4, 5))

    def forward(self, x: Any) -> Any:
        return 8.0 * TF.linear(TF.normalize(self.body(x)), TF.normalize(self.centres))


class CosineHand(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.classes = pn.Linear(5, 4, bias_attr=False)
        self.b, self.a = pn.Linear(8, 5), pn.Linear(6, 8)
        self.slope = self.create_parameter([8])

    def forward(self, x: Any) -> Any:
        x = self.a(x)
        x = self.b(PF.relu(x) - self.slope * PF.relu(-x))
        x = x / x.norm(axis=1, keepdim=True)
        w = self.classes.weight
        return 8.0 * (x @ (w / w.norm(axis=0, keepdim=True)))


class CosineFunction(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.body = pn.Sequential(pn.Linear(6, 8), pn.PReLU(8), pn.Linear(8, 5))
        self.centres = self.create_parameter([4, 5])

    def forward(self, x: Any) -> Any:
        return PF.cosine_similarity(self.body(x).unsqueeze(1), self.centres.unsqueeze(0), axis=2) * 8.0


def cosine_hand(w: State) -> State:
    names = {"body.0": "a", "body.2": "b"}
    return {**lins(w, names), "slope": w["body.1.weight"], "classes.weight": w["centres"].T}


class OwnNorm(tn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale, self.offset = tn.Parameter(torch.ones(size)), tn.Parameter(torch.zeros(size))

    def forward(self, x: Any) -> Any:
        return TF.layer_norm(x, x.shape[-1:], self.scale, self.offset)


class CrossingDigits(tn.Module):
    """Norms of one shape in stem and stages, whose digits fit others by accident."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = tn.Sequential(tn.Linear(4, 6), OwnNorm(6))
        self.down = tn.Sequential(OwnNorm(6), tn.Linear(6, 6))
        self.stages = tn.ModuleList([tn.Sequential(tn.Linear(6, 6), OwnNorm(6)) for _ in range(2)])
        self.head = tn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        x = x + TF.gelu(self.stages[0](x))
        x = self.down(x)
        return self.head(x + TF.gelu(self.stages[1](x)))


class CrossingFlat(pn.Layer):
    """ln0 and ln1 are those of the stem and of the way down; digits of the linear layers count the other way."""

    def __init__(self) -> None:
        super().__init__()
        self.ln0, self.ln1, self.ln2, self.ln3 = (HandNorm(6) for _ in range(4))
        self.fc3, self.fc2, self.fc1, self.fc0 = pn.Linear(4, 6), pn.Linear(6, 6), pn.Linear(6, 6), pn.Linear(6, 6)
        self.cls = pn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        x = self.ln0(self.fc3(x))
        x = x + PF.gelu(self.ln2(self.fc2(x)))
        x = self.fc1(self.ln1(x))
        return self.cls(x + PF.gelu(self.ln3(self.fc0(x))))


def crossing(w: State, norm: str = "ln{}", fc: str = "fc{}", cls: str = "cls") -> State:
    made = lin(w, "head", cls)
    for old, i in (("stem.1", 0), ("down.0", 1), ("stages.0.1", 2), ("stages.1.1", 3)):
        made[f"{norm.format(i)}.gain"], made[f"{norm.format(i)}.shift"] = w[f"{old}.scale"], w[f"{old}.offset"]
    for old, i in (("stem.0", 3), ("stages.0.0", 2), ("down.1", 1), ("stages.1.0", 0)):
        made |= lin(w, old, fc.format(i))
    return made


_MEANINGLESS = {"ln0": "t3", "ln1": "t0", "ln2": "t2", "ln3": "t1", "fc0": "u1", "fc1": "u0", "fc2": "u3", "fc3": "u2"}


def crossing_meaningless(w: State) -> State:
    return {
        (_MEANINGLESS.get(name.partition(".")[0], name.partition(".")[0]) + "." + name.partition(".")[2]): array
        for name, array in crossing(w).items()
    }


PORTS = (
    Port(
        "layer_normed", LayerNormed,
        (
            Formulation("hand", LayerNormHand, lambda w: {
                **lins(w, "fc1 fc2 fc3"), **hand_norm(w, "norm1", "norm1"), **hand_norm(w, "norm2", "norm2"),
            }),
            Formulation("functional", LayerNormFunctional, layer_norm_functional),
        ),
        {"x": floats(4, 5)}, floats(4, 3), SQUARE, swap=True,
    ),
    Port(
        "rms_upcast", RmsBlocks,
        (
            Formulation("same", RmsUpcast, rms_upcast),
            Formulation("by_norm", lambda: RmsUpcast(RmsByNorm), rms_upcast),
            Formulation("flat", RmsFlat, rms_flat),
        ),
        {"ids": ints(12, 3, 5)}, ints(12, 15), ENTROPY, tolerance=1e-6, seeds=(0, 1, 2, 3, 4, 5),
    ),
    Port(
        "batch_normed", BatchNormed,
        (
            Formulation("hand", BatchNormHand, batch_hand),
            Formulation("functional", BatchNormFunctional, batch_functional),
            Formulation("folded", BatchNormFolded, batch_folded),
        ),
        {"x": floats(3, 3, 7)}, mode="eval", swap=True,
    ),
    Port(
        "group_normed", GroupNormed,
        (Formulation("hand", GroupNormHand, group_hand), Formulation("nested", GroupNormNested, group_nested)),
        {"x": floats(2, 4, 5, 5), "t": floats(2, 5)}, floats(2, 6, 5, 5), SQUARE, swap=True,
    ),
    Port(
        "instance_normed", InstanceNormed,
        (
            Formulation("framework", InstanceNormFramework, instance_framework),
            Formulation("groups", InstanceNormGroups, instance_groups),
        ),
        {"image": floats(2, 3, 6, 6)}, floats(2, 3, 6, 6), SQUARE,
    ),
    Port(
        "convnext", ConvNext,
        (
            Formulation("first", ConvNextFirst, convnext_first),
            Formulation("merged", ConvNextMerged, convnext_merged),
        ),
        {"x": floats(2, 6, 6, 6)},
    ),
    Port(
        "weight_normed", WeightNormed,
        (
            Formulation("removed", WeightNormRemoved, weight_removed),
            Formulation("hand", WeightNormHand, weight_hand),
        ),
        {"x": floats(2, 3, 9)},
    ),
    Port(
        "cosine_head", CosineHead,
        (
            Formulation("hand", CosineHand, cosine_hand),
            Formulation("function", CosineFunction, lambda w: {
                **lins(w, "body.0 body.2"), "body.1._weight": w["body.1.weight"], "centres": w["centres"],
            }),
        ),
        {"x": floats(5, 6)}, ints(4, 5), ENTROPY, swap=True,
    ),
    Port(
        "crossing_digits", CrossingDigits,
        (
            Formulation("flat", CrossingFlat, crossing),
            Formulation("meaningless", renamed(CrossingFlat, **_MEANINGLESS), crossing_meaningless),
        ),
        {"x": floats(4, 4)}, ints(3, 4), ENTROPY, swap=True,
    ),
)  # fmt: skip
