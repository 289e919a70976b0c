"""Programs: losses formulated otherwise, several models and outputs, optimizers by hand, copies, sets, graphs."""

from __future__ import annotations

import copy
import math
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
    bits,
    chances,
    floats,
    ints,
    lin,
    lins,
    paddle_entropy_by_hand,
    renamed,
    reregistered,
    same,
)

# A variational autoencoder; the noise is an input.


class Vae(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = tn.Linear(10, 8)
        self.mu, self.logvar = tn.Linear(8, 3), tn.Linear(8, 3)
        self.decoder = tn.Sequential(tn.Linear(3, 8), tn.ReLU(), tn.Linear(8, 10))

    def forward(self, image: Any, noise: Any) -> Any:
        h = torch.relu(self.encoder(image))
        mu, logvar = self.mu(h), self.logvar(h)
        return self.decoder(mu + noise * torch.exp(0.5 * logvar)), mu, logvar


def vae_loss(outputs: Any, targets: Any) -> Any:
    logits, mu, logvar = outputs
    likely = TF.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
    return (likely - 0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum()) / len(targets)


class VaeDict(pn.Layer):
    """One layer for both statistics; a dict comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.stats = pn.Linear(10, 8), pn.Linear(8, 6)
        self.decoder = pn.Sequential(pn.Linear(3, 8), pn.ReLU(), pn.Linear(8, 10))

    def forward(self, image: Any, noise: Any) -> Any:
        mu, logvar = self.stats(PF.relu(self.encoder(image))).chunk(2, axis=1)
        z = mu + paddle.sqrt(paddle.exp(logvar)) * noise
        return {"logits": self.decoder(z), "mu": mu, "logvar": logvar}


class VaeNamed(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.dec2, self.dec1 = pn.Linear(8, 10), pn.Linear(3, 8)
        self.log_variance, self.mean, self.enc = pn.Linear(8, 3), pn.Linear(8, 3), pn.Linear(10, 8)
        self.act = pn.ReLU()

    def forward(self, image: Any, noise: Any) -> Any:
        h = self.act(self.enc(image))
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + noise * (log_variance / 2).exp()
        return self.dec2(self.act(self.dec1(z))), mean, log_variance


def vae_dict_loss(outputs: Any, targets: Any) -> Any:
    chance = PF.sigmoid(outputs["logits"])
    likely = PF.binary_cross_entropy(chance, targets, reduction="none").sum(1).mean()
    mu, logvar = outputs["mu"], outputs["logvar"]
    return likely + 0.5 * (mu**2 + paddle.exp(logvar) - logvar - 1).sum(1).mean()


def vae_named_loss(outputs: Any, targets: Any) -> Any:
    logits, mean, logvar = outputs
    likely = (PF.softplus(logits) - targets * logits).sum()
    divergence = 0.5 * (mean * mean + logvar.exp() - 1 - logvar).sum()
    return (likely + divergence) / targets.shape[0]


def vae_dict(w: State) -> State:
    made = lins(w, "encoder decoder.0 decoder.2")
    made["stats.weight"] = np.concatenate([w["mu.weight"], w["logvar.weight"]]).T
    return {**made, "stats.bias": np.concatenate([w["mu.bias"], w["logvar.bias"]])}


# PointNet.


class PointNet(tn.Module):
    """Shared layers as 1-D convolutions, max over the points, an input transform."""

    def __init__(self) -> None:
        super().__init__()
        self.t1, self.t2 = tn.Conv1d(3, 6, 1), tn.Linear(6, 9)
        self.conv1, self.conv2 = tn.Conv1d(3, 6, 1), tn.Conv1d(6, 8, 1)
        self.fc = tn.Linear(8, 4)

    def forward(self, points: Any) -> Any:
        turn = self.t2(torch.relu(self.t1(points)).amax(2)).view(-1, 3, 3) + torch.eye(3, dtype=points.dtype)
        x = (points.transpose(1, 2) @ turn).transpose(1, 2)
        return self.fc(self.conv2(torch.relu(self.conv1(x))).amax(2))


class PointNetLinear(pn.Layer):
    """Points last but one, linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tnet = pn.LayerList([pn.Linear(3, 6), pn.Linear(6, 9)])
        self.mlp = pn.LayerList([pn.Linear(3, 6), pn.Linear(6, 8)])
        self.head = pn.Linear(8, 4)

    def forward(self, points: Any) -> Any:
        x = points.transpose([0, 2, 1])
        turn = self.tnet[1](PF.relu(self.tnet[0](x)).max(axis=1)).reshape([-1, 3, 3]) + paddle.eye(3, dtype=x.dtype)
        x = paddle.bmm(x, turn)
        return self.head(self.mlp[1](PF.relu(self.mlp[0](x))).max(axis=1))


class PointNetTwoD(pn.Layer):
    """2-D convolutions over a plane of width 1, pooling layers; the identity is in the bias."""

    def __init__(self) -> None:
        super().__init__()
        self.c3, self.c2, self.c1 = pn.Conv2D(6, 8, 1), pn.Conv2D(3, 6, 1), pn.Conv2D(3, 6, 1)
        self.pool = pn.AdaptiveMaxPool2D(1)
        self.f2, self.f1 = pn.Linear(8, 4), pn.Linear(6, 9)

    def forward(self, points: Any) -> Any:
        x = points.unsqueeze(3)
        turn = self.f1(self.pool(PF.relu(self.c1(x))).flatten(1)).reshape([-1, 3, 3])
        x = paddle.einsum("bip,bij->bjp", points, turn).unsqueeze(3)
        return self.f2(self.pool(self.c3(PF.relu(self.c2(x)))).flatten(1))


def pointnet_linear(w: State) -> State:
    made = lins(w, {"t2": "tnet.1", "fc": "head"})
    for old, new in (("t1", "tnet.0"), ("conv1", "mlp.0"), ("conv2", "mlp.1")):
        made[f"{new}.weight"], made[f"{new}.bias"] = w[f"{old}.weight"][:, :, 0].T, w[f"{old}.bias"]
    return made


def pointnet_two_d(w: State) -> State:
    made = {**lin(w, "fc", "f2"), "f1.weight": w["t2.weight"].T, "f1.bias": w["t2.bias"] + np.eye(3).reshape(-1)}
    for old, new in (("t1", "c1"), ("conv1", "c2"), ("conv2", "c3")):
        made[f"{new}.weight"], made[f"{new}.bias"] = w[f"{old}.weight"][..., None], w[f"{old}.bias"]
    return made


# Contrastive learning.


class Clip(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = tn.Linear(6, 5), tn.Linear(6, 5)
        self.scale = tn.Parameter(torch.tensor(1.5))

    def forward(self, images: Any, texts: Any) -> Any:
        a, b = TF.normalize(self.image(images)), TF.normalize(self.text(texts))
        return self.scale.exp() * a @ b.T


def clip_loss(logits: Any) -> Any:
    labels = torch.arange(len(logits))
    return (TF.cross_entropy(logits, labels) + TF.cross_entropy(logits.T, labels)) / 2


class ClipHand(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.text_projection, self.visual_projection = pn.Linear(6, 5), pn.Linear(6, 5)
        self.logit_scale = self.create_parameter([1])

    def forward(self, images: Any, texts: Any) -> Any:
        a, b = self.visual_projection(images), self.text_projection(texts)
        a = a / paddle.sqrt((a * a).sum(-1, keepdim=True))
        b = b / paddle.sqrt((b * b).sum(-1, keepdim=True))
        return paddle.exp(self.logit_scale) * paddle.matmul(a, b, transpose_y=True)


class ClipStacked(pn.Layer):
    """Both towers as one stacked tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = self.create_parameter([2, 6, 5])
        self.biases = self.create_parameter([2, 1, 5], is_bias=True)
        self.temperature = self.create_parameter([])

    def forward(self, images: Any, texts: Any) -> Any:
        x = PF.normalize(paddle.bmm(paddle.stack([images, texts]), self.towers) + self.biases, axis=-1)
        return x[0] @ x[1].T * self.temperature.exp()


def clip_hand_loss(logits: Any) -> Any:
    right = paddle.diagonal(logits).mean()
    return (paddle.logsumexp(logits, axis=1).mean() + paddle.logsumexp(logits, axis=0).mean()) / 2 - right


def clip_logs_loss(logits: Any) -> Any:
    one, other = PF.log_softmax(logits, axis=1), PF.log_softmax(logits, axis=0)
    return -0.5 * (paddle.trace(one) + paddle.trace(other)) / logits.shape[0]


def clip_hand(w: State) -> State:
    names = {"image": "visual_projection", "text": "text_projection"}
    return {**lins(w, names), "logit_scale": w["scale"].reshape(1)}


def clip_stacked(w: State) -> State:
    return {
        "towers": np.stack([w["image.weight"].T, w["text.weight"].T]),
        "biases": np.stack([w["image.bias"][None], w["text.bias"][None]]),
        "temperature": w["scale"],
    }


# Siamese networks with a triplet loss.


class Siamese(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = tn.Sequential(tn.Linear(6, 8), tn.Tanh(), tn.Linear(8, 4))

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        return self.net(anchor), self.net(positive), self.net(negative)


def siamese_loss(outputs: Any) -> Any:
    return TF.triplet_margin_loss(*outputs, margin=2.0, eps=0.0)


class SiameseOnce(pn.Layer):
    """The three batches go through together."""

    def __init__(self) -> None:
        super().__init__()
        self.second, self.first = pn.Linear(8, 4), pn.Linear(6, 8)

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        x = self.second(PF.tanh(self.first(paddle.concat([anchor, positive, negative]))))
        return tuple(x.chunk(3))


class SiameseStack(pn.Layer):
    """One tensor of three comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.w0, self.b0 = self.create_parameter([6, 8]), self.create_parameter([8], is_bias=True)
        self.w1, self.b1 = self.create_parameter([8, 4]), self.create_parameter([4], is_bias=True)

    def embed(self, x: Any) -> Any:
        return paddle.addmm(self.b1.expand([x.shape[0], 4]), PF.tanh(x @ self.w0 + self.b0), self.w1)

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        return {"anchor": self.embed(anchor), "positive": self.embed(positive), "negative": self.embed(negative)}


def siamese_once_loss(outputs: Any) -> Any:
    a, p, n = outputs
    return PF.relu((a - p).norm(axis=1) - (a - n).norm(axis=1) + 2.0).mean()


def siamese_stack_loss(outputs: Any) -> Any:
    a, p, n = outputs["anchor"], outputs["positive"], outputs["negative"]
    near, far = paddle.sqrt(((a - p) ** 2).sum(1)), paddle.sqrt(((a - n) ** 2).sum(1))
    return paddle.clip(2.0 + near - far, min=0.0).sum() / a.shape[0]


# Vector quantisation.


class Quantiser(tn.Module):
    """Nearest code, straight through; the codes learn by their own term."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = tn.Linear(5, 4), tn.Linear(4, 5)
        self.codes = tn.Embedding(7, 4)

    def forward(self, x: Any) -> Any:
        z = self.enter(x)
        q = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
        return self.leave(z + (q - z).detach()), z, q


def quantiser_loss(outputs: Any, targets: Any) -> Any:
    made, z, q = outputs
    return TF.mse_loss(made, targets) + TF.mse_loss(q, z.detach()) + 0.25 * TF.mse_loss(z, q.detach())


class QuantiserExpanded(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.codebook = self.create_parameter([7, 4])
        self.post, self.pre = pn.Linear(4, 5), pn.Linear(5, 4)

    def forward(self, x: Any) -> Any:
        z = self.pre(x)
        far = (z**2).sum(1, keepdim=True) - 2 * z @ self.codebook.T + (self.codebook**2).sum(1)
        q = PF.one_hot(far.argmin(1), 7).astype(z.dtype) @ self.codebook
        return self.post(z + (q - z).detach()), z, q


class QuantiserTransposed(pn.Layer):
    """Codes as columns."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder, self.encoder = pn.Linear(4, 5), pn.Linear(5, 4)
        self.embed = self.create_parameter([4, 7])

    def forward(self, x: Any) -> Any:
        z = self.encoder(x)
        near = paddle.argmax(z @ self.embed - 0.5 * (self.embed * self.embed).sum(0), axis=1)
        q = paddle.index_select(self.embed, near, axis=1).T
        return self.decoder(q.detach() + z - z.detach()), z, q


def paddle_quantiser_loss(outputs: Any, targets: Any) -> Any:
    made, z, q = outputs
    return ((made - targets) ** 2).mean() + ((q - z.detach()) ** 2).mean() + 0.25 * ((z - q.detach()) ** 2).mean()


# A graph network.


class Graph(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = tn.Linear(5, 6), tn.Linear(6, 3)

    def forward(self, x: Any, links: Any) -> Any:
        adjacency = torch.maximum(links, links.T)
        adjacency = torch.maximum(adjacency, torch.eye(len(links), dtype=links.dtype))
        scale = adjacency.sum(1).rsqrt()
        adjacency = scale[:, None] * adjacency * scale
        return adjacency @ self.lin2(torch.relu(adjacency @ self.lin1(x)))


class GraphPropagateFirst(pn.Layer):
    """First to the neighbours, then the layer: the same for a linear layer but for its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.W1, self.W2 = self.create_parameter([5, 6]), self.create_parameter([6, 3])
        self.b1, self.b2 = self.create_parameter([6], is_bias=True), self.create_parameter([3], is_bias=True)

    def forward(self, x: Any, links: Any) -> Any:
        full = paddle.clip(links + links.T + paddle.eye(links.shape[0], dtype=links.dtype), max=1.0)
        scale = paddle.diag(1 / paddle.sqrt(full.sum(1)))
        full = scale @ full @ scale
        weight = full.sum(1, keepdim=True)
        h = PF.relu(full @ x @ self.W1 + weight * self.b1)
        return full @ h @ self.W2 + weight * self.b2


class GraphScatter(pn.Layer):
    """Messages along a list of edges, added up."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = pn.LayerList([pn.Linear(5, 6), pn.Linear(6, 3)])

    def spread(self, x: Any, source: Any, target: Any, weight: Any) -> Any:
        return paddle.zeros_like(x).index_add(target, 0, x[source] * weight.unsqueeze(1))

    def forward(self, x: Any, links: Any) -> Any:
        full = paddle.maximum(paddle.maximum(links, links.T), paddle.eye(links.shape[0], dtype=links.dtype))
        target, source = (one.flatten() for one in paddle.nonzero(full, as_tuple=True))
        degree = full.sum(1)
        weight = 1 / paddle.sqrt(degree[source] * degree[target])
        x = PF.relu(self.spread(self.convs[0](x), source, target, weight))
        return self.spread(self.convs[1](x), source, target, weight)


# Modulation by time, packed and apart.


class Film(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = tn.Sequential(tn.Linear(4, 8), tn.SiLU(), tn.Linear(8, 12))
        self.enter, self.leave = tn.Linear(5, 6), tn.Linear(6, 5)
        self.norm = tn.LayerNorm(6, elementwise_affine=False)

    def forward(self, x: Any, t: Any) -> Any:
        angles = t[:, None] * torch.tensor([1.0, 0.1], dtype=t.dtype)
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], 1)).chunk(2, 1)
        return self.leave(TF.gelu(self.norm(self.enter(x)) * (1 + scale) + shift))


class FilmApart(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embed = pn.Linear(4, 8)
        self.shift, self.scale = pn.Linear(8, 6), pn.Linear(8, 6)
        self.enter, self.leave = pn.Linear(5, 6), pn.Linear(6, 5)

    def forward(self, x: Any, t: Any) -> Any:
        t = t.unsqueeze(1)
        t = PF.silu(
            self.embed(paddle.concat([paddle.sin(t), paddle.sin(0.1 * t), paddle.cos(t), paddle.cos(0.1 * t)], 1))
        )
        y = PF.layer_norm(self.enter(x), [6])
        return self.leave(PF.gelu(y + y * self.scale(t) + self.shift(t)))


class FilmMerged(pn.Layer):
    """The one that is added to the scale is in its bias; the norm by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.mod = pn.Sequential(pn.Linear(4, 8), pn.Silu(), pn.Linear(8, 12))
        self.a, self.b = pn.Linear(6, 5), pn.Linear(5, 6)

    def forward(self, x: Any, t: Any) -> Any:
        angles = paddle.stack([t, 0.1 * t], axis=1)
        mod = self.mod(paddle.concat([angles.sin(), angles.cos()], axis=1))
        y = self.b(x)
        y = (y - y.mean(1, keepdim=True)) * paddle.rsqrt(y.var(1, unbiased=False, keepdim=True) + 1e-5)
        return self.a(PF.gelu(mod[:, :6] * y + mod[:, 6:]))


def film_apart(w: State) -> State:
    made = lins(w, {"time.0": "embed", "enter": "enter", "leave": "leave"})
    for i, name in enumerate(("scale", "shift")):
        made[f"{name}.weight"] = w["time.2.weight"].reshape(2, 6, 8)[i].T
        made[f"{name}.bias"] = w["time.2.bias"].reshape(2, 6)[i]
    return made


def film_merged(w: State) -> State:
    made = lins(w, {"time.0": "mod.0", "time.2": "mod.2", "enter": "b", "leave": "a"})
    return {**made, "mod.2.bias": w["time.2.bias"] + np.repeat([1.0, 0.0], 6)}


# A network with skips, one activation module called twice; losses for many labels.


class Deep(tn.Module):
    """NeRF-like: the input enters again half way."""

    def __init__(self) -> None:
        super().__init__()
        self.l1, self.l2, self.l3 = tn.Linear(4, 8), tn.Linear(8, 8), tn.Linear(12, 8)
        self.act1, self.act2 = tn.LeakyReLU(0.2), tn.LeakyReLU(0.2)
        self.density, self.colour = tn.Linear(8, 1), tn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        h = self.act2(self.l2(self.act1(self.l1(x))))
        h = torch.tanh(self.l3(torch.cat([h, x], 1)))
        return {"density": TF.softplus(self.density(h)), "colour": torch.sigmoid(self.colour(h))}


def deep_loss(outputs: Any, targets: Any) -> Any:
    return TF.smooth_l1_loss(outputs["colour"], targets["colour"]) + TF.l1_loss(outputs["density"], targets["density"])


class DeepShared(pn.Layer):
    """One activation module; the entering input has a layer of its own; a tuple comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.act = pn.LeakyReLU(0.2)
        self.l1, self.l2, self.l3a = pn.Linear(4, 8), pn.Linear(8, 8), pn.Linear(8, 8)
        self.l3b = pn.Linear(4, 8, bias_attr=False)
        self.density, self.colour = pn.Linear(8, 1), pn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        h = self.act(self.l2(self.act(self.l1(x))))
        h = PF.tanh(self.l3a(h) + self.l3b(x))
        return PF.softplus(self.density(h)), PF.sigmoid(self.colour(h))


class DeepNested(pn.Layer):
    """One head for density and colour, trunk nested."""

    def __init__(self) -> None:
        super().__init__()
        self.head = pn.Linear(8, 4)
        self.trunk = pn.LayerDict({
            "late": pn.Sequential(pn.Linear(12, 8), pn.Tanh()),
            "early": pn.Sequential(pn.Linear(4, 8), pn.LeakyReLU(0.2), pn.Linear(8, 8), pn.LeakyReLU(0.2)),
        })  # fmt: skip

    def forward(self, x: Any) -> Any:
        h = self.head(self.trunk["late"](paddle.concat([self.trunk["early"](x), x], axis=1)))
        return {"density": PF.softplus(h[:, :1]), "colour": PF.sigmoid(h[:, 1:])}


def deep_shared_loss(outputs: Any, targets: Any) -> Any:
    gap = paddle.abs(outputs[1] - targets["colour"])
    smooth = paddle.where(gap < 1, 0.5 * gap**2, gap - 0.5).mean()
    return smooth + paddle.abs(outputs[0] - targets["density"]).mean()


def deep_nested_loss(outputs: Any, targets: Any) -> Any:
    smooth = PF.smooth_l1_loss(outputs["colour"], targets["colour"])
    return smooth + PF.l1_loss(outputs["density"], targets["density"])


def deep_shared(w: State) -> State:
    return {
        **lins(w, "l1 l2 density colour"),
        "l3a.weight": w["l3.weight"][:, :8].T,
        "l3a.bias": w["l3.bias"],
        "l3b.weight": w["l3.weight"][:, 8:].T,
    }


def deep_nested(w: State) -> State:
    return {
        **lins(w, {"l1": "trunk.early.0", "l2": "trunk.early.2", "l3": "trunk.late.0"}),
        "head.weight": np.concatenate([w["density.weight"], w["colour.weight"]]).T,
        "head.bias": np.concatenate([w["density.bias"], w["colour.bias"]]),
    }


class Labels(tn.Module):
    """Several labels with a focal loss, several classes with smoothed labels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = tn.Sequential(tn.Linear(6, 8), tn.Mish(), tn.Linear(8, 8), tn.Softplus())
        self.many, self.one = tn.Linear(8, 4), tn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        h = self.body(x)
        return self.many(h), self.one(h)


def labels_loss(outputs: Any, targets: Any) -> Any:
    many, one = outputs
    chance = torch.sigmoid(many)
    right = torch.where(targets["many"] > 0, chance, 1 - chance)
    focal = TF.binary_cross_entropy_with_logits(many, targets["many"], reduction="none") * (1 - right) ** 2
    return focal.mean() + TF.cross_entropy(one, targets["one"], label_smoothing=0.1)


class LabelsFlat(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pn.Linear(6, 8), pn.Linear(8, 8)
        self.one, self.many = pn.Linear(8, 4), pn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        h = PF.softplus(self.second(x * PF.tanh(PF.softplus(x))))
        return self.many(h), self.one(h)


class LabelsPacked(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.body = pn.Sequential(pn.Linear(6, 8), pn.Mish(), pn.Linear(8, 8), pn.Softplus())
        self.heads = pn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.heads(self.body(x)).split(2, axis=1)


def labels_flat_loss(outputs: Any, targets: Any) -> Any:
    many, one = outputs
    sign = 2 * targets["many"] - 1
    focal = (PF.softplus(-sign * many) * PF.sigmoid(-sign * many) ** 2).mean()
    logs = PF.log_softmax(one, axis=1)
    picked = paddle.take_along_axis(logs, targets["one"].unsqueeze(1), axis=1)
    return focal - 0.9 * picked.mean() - 0.1 * logs.mean()


def labels_packed_loss(outputs: Any, targets: Any) -> Any:
    many, one = outputs
    chance = PF.sigmoid(many)
    right = targets["many"] * chance + (1 - targets["many"]) * (1 - chance)
    focal = -(((1 - right) ** 2) * paddle.log(right)).mean()
    soft = 0.9 * PF.one_hot(targets["one"], 4).astype(one.dtype) + 0.1 / 4
    return focal + PF.cross_entropy(one, soft, soft_label=True)


def labels_packed(w: State) -> State:
    return {
        **lins(w, "body.0 body.2"),
        "heads.weight": np.concatenate([w["many.weight"], w["one.weight"]]).T,
        "heads.bias": np.concatenate([w["many.bias"], w["one.bias"]]),
    }


# Optimizers written by hand.


class Trained(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = tn.Linear(5, 7), tn.Linear(7, 3)

    def forward(self, x: Any) -> Any:
        return self.fc2(torch.relu(self.fc1(x)))


class TrainedSame(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = pn.Linear(5, 7), pn.Linear(7, 3)

    def forward(self, x: Any) -> Any:
        return self.fc2(PF.relu(self.fc1(x)))


class TrainedBare(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = self.create_parameter([7, 3]), self.create_parameter([5, 7])
        self.last_b, self.first_b = self.create_parameter([3], is_bias=True), self.create_parameter([7], is_bias=True)

    def forward(self, x: Any) -> Any:
        return PF.relu(x @ self.first + self.first_b) @ self.last + self.last_b


class HandOptimizer(paddle.optimizer.Optimizer):
    """An optimizer that keeps its state in lists of its own and updates by assignment."""

    def __init__(self, rate: float, parameters: Any) -> None:
        self.own = list(parameters)
        super().__init__(learning_rate=rate, parameters=self.own)
        self.time = 0
        self.first = [paddle.zeros_like(one) for one in self.own]
        self.second = [paddle.zeros_like(one) for one in self.own]

    def update(self, i: int, gradient: Any) -> Any:
        raise NotImplementedError

    def step(self) -> None:
        self.time += 1
        with paddle.no_grad():
            for i, one in enumerate(self.own):
                if one.grad is not None:
                    one.set_value(one - self.update(i, one.grad))


class HandMomentum(HandOptimizer):
    """The learning rate is inside the velocity; while it does not change this is torch's."""

    def update(self, i: int, gradient: Any) -> Any:
        self.first[i] = 0.9 * self.first[i] + self.get_lr() * gradient
        return self.first[i]


class HandAdam(HandOptimizer):
    """Bias corrections multiplied into the rate and the epsilon."""

    def update(self, i: int, gradient: Any) -> Any:
        self.first[i] = 0.9 * self.first[i] + 0.1 * gradient
        self.second[i] = 0.99 * self.second[i] + 0.01 * gradient * gradient
        root = math.sqrt(1 - 0.99**self.time)
        rate = self.get_lr() * root / (1 - 0.9**self.time)
        return rate * self.first[i] / (paddle.sqrt(self.second[i]) + 1e-5 * root)


def torch_momentum(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def paddle_momentum(model: Any) -> Any:
    return paddle.optimizer.Momentum(0.05, 0.9, parameters=model.parameters())


def torch_adam(model: Any) -> Any:
    return torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.99), eps=1e-5)


def paddle_adam(model: Any) -> Any:
    return paddle.optimizer.Adam(0.01, 0.9, 0.99, 1e-5, parameters=model.parameters())


def bare(w: State) -> State:
    return {"first": w["fc1.weight"].T, "first_b": w["fc1.bias"], "last": w["fc2.weight"].T, "last_b": w["fc2.bias"]}


# Copies that are never called.


class WithAverage(tn.Module):
    """Holds an average of itself, which the forward pass does not touch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = tn.Sequential(tn.Linear(4, 6), tn.ELU(), tn.Linear(6, 3))
        self.ema = copy.deepcopy(self.net)
        for one in self.ema.parameters():
            one.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        return self.net(x)


class AverageFlat(pn.Layer):
    """The copy is registered first and has the plainer names."""

    def __init__(self) -> None:
        super().__init__()
        self.shadow1, self.shadow2 = pn.Linear(4, 6), pn.Linear(6, 3)
        for one in self.parameters():
            one.stop_gradient = True
        self.fc1, self.fc2 = pn.Linear(4, 6), pn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.fc2(PF.elu(self.fc1(x)))


class AverageNone(pn.Layer):
    """Has no copy."""

    def __init__(self) -> None:
        super().__init__()
        self.model = pn.Sequential(pn.Linear(4, 6), pn.ELU(), pn.Linear(6, 3))

    def forward(self, x: Any) -> Any:
        return self.model(x)


# Several models by name.


def torch_pair() -> dict[str, Any]:
    return {
        "generator": tn.Sequential(tn.Linear(3, 6), tn.ReLU(), tn.Linear(6, 5)),
        "critic": tn.Sequential(tn.Linear(5, 6), tn.LeakyReLU(0.2), tn.Linear(6, 1)),
    }


class Generator(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.out, self.hidden = pn.Linear(6, 5), pn.Linear(3, 6)

    def forward(self, noise: Any) -> Any:
        return self.out(PF.relu(self.hidden(noise)))


class Critic(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = self.create_parameter([5, 6]), self.create_parameter([6], is_bias=True)
        self.score = self.create_parameter([6])
        self.offset = self.create_parameter([1], is_bias=True)

    def forward(self, x: Any) -> Any:
        h = PF.leaky_relu(x @ self.w + self.b, 0.2)
        return ((h * self.score).sum(1) + self.offset).unsqueeze(1)


def paddle_pair_named() -> dict[str, Any]:
    critic = pn.Sequential(pn.Linear(5, 6), pn.LeakyReLU(0.2), pn.Linear(6, 1))
    return {"generator": Generator(), "critic": critic}


def paddle_pair_bare() -> dict[str, Any]:
    return {"generator": pn.Sequential(pn.Linear(3, 6), pn.ReLU(), pn.Linear(6, 5)), "critic": Critic()}


def torch_pair_optimizers(models: Any) -> Any:
    return {name: torch.optim.SGD(model.parameters(), lr=0.1) for name, model in models.items()}


def paddle_pair_optimizers(models: Any) -> Any:
    return {name: paddle.optimizer.SGD(0.1, parameters=model.parameters()) for name, model in models.items()}


def torch_pair_step(models: Any, optimizers: Any, inputs: Any, targets: Any) -> None:
    fake = models["generator"](inputs["noise"])
    (models["critic"](fake.detach()).mean() - models["critic"](inputs["real"]).mean()).backward()
    optimizers["critic"].step()
    optimizers["critic"].zero_grad()
    (-models["critic"](fake).mean()).backward()
    optimizers["generator"].step()
    optimizers["generator"].zero_grad()
    optimizers["critic"].zero_grad()


def paddle_pair_step(models: Any, optimizers: Any, inputs: Any, targets: Any) -> None:
    fake = models["generator"](inputs["noise"])
    (models["critic"](fake.detach()).mean() - models["critic"](inputs["real"]).mean()).backward()
    optimizers["critic"].step()
    optimizers["critic"].clear_grad()
    (-models["critic"](fake).mean()).backward()
    optimizers["generator"].step()
    optimizers["generator"].clear_grad()
    optimizers["critic"].clear_grad()


def pair_named(w: State) -> State:
    return lins(w, {
        "generator.0": "generator.hidden", "generator.2": "generator.out", "critic.0": "critic.0",
        "critic.2": "critic.2",
    })  # fmt: skip


def pair_bare(w: State) -> State:
    return {
        **lins(w, "generator.0 generator.2"),
        "critic.w": w["critic.0.weight"].T,
        "critic.b": w["critic.0.bias"],
        "critic.score": w["critic.2.weight"][0],
        "critic.offset": w["critic.2.bias"],
    }


# Nesting and names.


class Tower(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = tn.ModuleDict({
            "left": tn.Sequential(tn.Linear(6, 6), tn.Tanh(), tn.Linear(6, 6)),
            "right": tn.Sequential(tn.Linear(6, 6), tn.Sigmoid(), tn.Linear(6, 6)),
        })  # fmt: skip
        self.join = tn.Linear(6, 6)
        self.head = tn.Parameter(torch.randn(6, 4))

    def forward(self, x: Any) -> Any:
        x = x + self.block["left"](x) * self.block["right"](x)
        return torch.relu(self.join(x)) @ self.head


class TowerFlat(pn.Layer):
    """All layers have one shape; digits count backwards; the head is a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc5, self.fc4, self.fc3, self.fc2, self.fc1 = (pn.Linear(6, 6) for _ in range(5))
        self.head = pn.Linear(6, 4, bias_attr=False)

    def forward(self, x: Any) -> Any:
        left = self.fc4(PF.tanh(self.fc5(x)))
        right = self.fc2(PF.sigmoid(self.fc3(x)))
        return self.head(PF.relu(self.fc1(x + left * right)))


class Arm(pn.Layer):
    def __init__(self, act: Any) -> None:
        super().__init__()
        self.output, self.input, self.act = pn.Linear(6, 6), pn.Linear(6, 6), act

    def forward(self, x: Any) -> Any:
        return self.output(self.act(self.input(x)))


class TowerNested(pn.Layer):
    """Deeper nesting; the right arm is registered and called first."""

    def __init__(self) -> None:
        super().__init__()
        self.arms = pn.LayerDict({"b": Arm(pn.Sigmoid()), "a": Arm(pn.Tanh())})
        self.tail = pn.Sequential(pn.Linear(6, 6), pn.ReLU(), pn.Linear(6, 4, bias_attr=False))

    def forward(self, x: Any) -> Any:
        right = self.arms["b"](x)
        return self.tail(x + right * self.arms["a"](x))


def tower_flat(w: State, names: str = "fc5 fc4 fc3 fc2 fc1 head") -> State:
    old = ["block.left.0", "block.left.2", "block.right.0", "block.right.2", "join"]
    *layers, head = names.split()
    return {**lins(w, dict(zip(old, layers, strict=True))), f"{head}.weight": w["head"]}


def tower_nested(w: State) -> State:
    names = {
        "block.left.0": "arms.a.input", "block.left.2": "arms.a.output", "block.right.0": "arms.b.input",
        "block.right.2": "arms.b.output", "join": "tail.0",
    }  # fmt: skip
    return {**lins(w, names), "tail.2.weight": w["head"]}


class Sets(tn.Module):
    """Deep sets with a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.phi1, self.phi2 = tn.Linear(4, 6), tn.Linear(6, 6)
        self.rho1, self.rho2 = tn.Linear(6, 6), tn.Linear(6, 3)

    def forward(self, items: Any, mask: Any) -> Any:
        x = TF.selu(self.phi2(TF.selu(self.phi1(items)))) * mask[:, :, None]
        return self.rho2(TF.selu(self.rho1(x.sum(1) / (mask.sum(1, keepdim=True) + 1))))


class SetsConv(pn.Layer):
    """1×1 convolutions over the items; the sum as a product with the mask."""

    def __init__(self) -> None:
        super().__init__()
        self.rho = pn.Sequential(pn.Linear(6, 6), pn.SELU(), pn.Linear(6, 3))
        self.phi = pn.Sequential(pn.Conv1D(4, 6, 1), pn.SELU(), pn.Conv1D(6, 6, 1), pn.SELU())

    def forward(self, items: Any, mask: Any) -> Any:
        x = paddle.bmm(self.phi(items.transpose([0, 2, 1])), mask.unsqueeze(2)).squeeze(2)
        return self.rho(x / (mask.sum(1, keepdim=True) + 1))


class SetsFlat(pn.Layer):
    """Items of all sets in one long list."""

    def __init__(self) -> None:
        super().__init__()
        self.l0, self.l1, self.l2, self.l3 = pn.Linear(6, 3), pn.Linear(6, 6), pn.Linear(6, 6), pn.Linear(4, 6)

    def forward(self, items: Any, mask: Any) -> Any:
        x = PF.selu(self.l1(PF.selu(self.l3(items.flatten(0, 1))))).reshape([*items.shape[:2], 6])
        x = paddle.einsum("bnd,bn->bd", x, mask / (mask.sum(1, keepdim=True) + 1))
        return self.l0(PF.selu(self.l2(x)))


def sets_conv(w: State) -> State:
    made = lins(w, {"rho1": "rho.0", "rho2": "rho.2"})
    for old, new in (("phi1", "phi.0"), ("phi2", "phi.2")):
        made[f"{new}.weight"], made[f"{new}.bias"] = w[f"{old}.weight"][:, :, None], w[f"{old}.bias"]
    return made


# More than four hundred weights, all of two shapes.

DEPTH = 52


class ManyBlock(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = tn.LayerNorm(4)
        self.fc1, self.fc2 = tn.Linear(4, 4), tn.Linear(4, 4)
        self.gain, self.shift = tn.Parameter(torch.ones(4)), tn.Parameter(torch.zeros(4))

    def forward(self, x: Any) -> Any:
        return x + 0.3 * (self.fc2(torch.tanh(self.fc1(self.norm(x)))) * self.gain + self.shift)


class Many(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = tn.ModuleList([ManyBlock() for _ in range(DEPTH)])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


class ManyByKind(pn.Layer):
    """Lists by kind instead of blocks, the last block first."""

    def __init__(self) -> None:
        super().__init__()
        self.outer, self.inner = (pn.LayerList([pn.Linear(4, 4) for _ in range(DEPTH)]) for _ in range(2))
        self.shifts, self.gains = (
            pn.ParameterList([self.create_parameter([4], is_bias=True) for _ in range(DEPTH)]) for _ in range(2)
        )
        self.norms = pn.LayerList([pn.LayerNorm(4) for _ in range(DEPTH)])

    def forward(self, x: Any) -> Any:
        for i in reversed(range(DEPTH)):
            y = self.outer[i](PF.tanh(self.inner[i](self.norms[i](x))))
            x = x + 0.3 * (y * self.gains[i] + self.shifts[i])
        return x


class ManyStages(pn.Layer):
    """Four stages of thirteen; the gain is multiplied into the second layer and the shift added to its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = pn.LayerList([
            pn.LayerList([
                pn.Sequential(pn.LayerNorm(4), pn.Linear(4, 4), pn.Tanh(), pn.Linear(4, 4)) for _ in range(DEPTH // 4)
            ])
            for _ in range(4)
        ])  # fmt: skip

    def forward(self, x: Any) -> Any:
        for stage in self.stages:
            for block in stage:
                x = x + 0.3 * block(x)
        return x


def many_by_kind(w: State) -> State:
    made: State = {}
    for i in range(DEPTH):
        old, new = f"blocks.{i}", DEPTH - 1 - i
        made |= {**lins(w, {f"{old}.fc1": f"inner.{new}", f"{old}.fc2": f"outer.{new}"}),
                 **same(w, f"{old}.norm", f"norms.{new}"), f"gains.{new}": w[f"{old}.gain"],
                 f"shifts.{new}": w[f"{old}.shift"]}  # fmt: skip
    return made


def many_stages(w: State) -> State:
    made: State = {}
    for i in range(DEPTH):
        old, new = f"blocks.{i}", f"stages.{i // 13}.{i % 13}"
        made |= {**same(w, f"{old}.norm", f"{new}.0"), **lin(w, f"{old}.fc1", f"{new}.1")}
        made[f"{new}.3.weight"] = w[f"{old}.fc2.weight"].T * w[f"{old}.gain"]
        made[f"{new}.3.bias"] = w[f"{old}.fc2.bias"] * w[f"{old}.gain"] + w[f"{old}.shift"]
    return made


PORTS = (
    Port(
        "vae", Vae,
        (
            Formulation("dict", VaeDict, vae_dict),
            Formulation("named", VaeNamed, lambda w: lins(w, {
                "encoder": "enc", "mu": "mean", "logvar": "log_variance", "decoder.0": "dec1", "decoder.2": "dec2",
            }), loss=vae_named_loss),
        ),
        {"image": floats(4, 10), "noise": floats(4, 3)}, chances(4, 10), (vae_loss, vae_dict_loss),
    ),
    Port(
        "point_net", PointNet,
        (Formulation("linear", PointNetLinear, pointnet_linear), Formulation("two_d", PointNetTwoD, pointnet_two_d)),
        {"points": floats(3, 3, 7)}, ints(4, 3), ENTROPY,
    ),
    Port(
        "clip", Clip,
        (
            Formulation("hand", ClipHand, clip_hand),
            Formulation("stacked", ClipStacked, clip_stacked, loss=clip_logs_loss),
        ),
        {"images": floats(4, 6), "texts": floats(4, 6)}, None, (clip_loss, clip_hand_loss), swap=True,
    ),
    Port(
        "siamese", Siamese,
        (
            Formulation("once", SiameseOnce, lambda w: lins(w, {"net.0": "first", "net.2": "second"})),
            Formulation("stack", SiameseStack, lambda w: {
                "w0": w["net.0.weight"].T, "b0": w["net.0.bias"], "w1": w["net.2.weight"].T, "b1": w["net.2.bias"],
            }, loss=siamese_stack_loss),
        ),
        {"anchor": floats(4, 6), "positive": floats(4, 6), "negative": floats(4, 6)}, None,
        (siamese_loss, siamese_once_loss), tolerance=1e-6,
    ),
    Port(
        "quantiser", Quantiser,
        (
            Formulation("expanded", QuantiserExpanded, lambda w: {
                "codebook": w["codes.weight"], **lins(w, {"enter": "pre", "leave": "post"}),
            }),
            Formulation("transposed", QuantiserTransposed, lambda w: {
                "embed": w["codes.weight"].T, **lins(w, {"enter": "encoder", "leave": "decoder"}),
            }),
        ),
        {"x": floats(6, 5)}, floats(6, 5), (quantiser_loss, paddle_quantiser_loss),
    ),
    Port(
        "graph", Graph,
        (
            Formulation("first", GraphPropagateFirst, lambda w: {
                "W1": w["lin1.weight"].T, "b1": w["lin1.bias"], "W2": w["lin2.weight"].T, "b2": w["lin2.bias"],
            }),
            Formulation("scatter", GraphScatter, lambda w: lins(w, {"lin1": "convs.0", "lin2": "convs.1"})),
        ),
        {"x": floats(6, 5), "links": bits(6, 6)}, ints(3, 6), ENTROPY,
    ),
    Port(
        "film", Film,
        (Formulation("apart", FilmApart, film_apart), Formulation("merged", FilmMerged, film_merged)),
        {"x": floats(4, 5), "t": floats(4, scale=3.0)}, floats(4, 5), SQUARE, swap=True,
    ),
    Port(
        "deep", Deep,
        (
            Formulation("shared", DeepShared, deep_shared),
            Formulation("nested", DeepNested, deep_nested, loss=deep_nested_loss),
        ),
        {"x": floats(5, 4)}, {"colour": chances(5, 3), "density": chances(5, 1)}, (deep_loss, deep_shared_loss),
    ),
    Port(
        "labels", Labels,
        (
            Formulation("flat", LabelsFlat, lambda w: lins(w, {
                "body.0": "first", "body.2": "second", "many": "many", "one": "one",
            })),
            Formulation("packed", LabelsPacked, labels_packed, loss=labels_packed_loss),
        ),
        {"x": floats(5, 6)}, {"many": bits(5, 4), "one": ints(4, 5)}, (labels_loss, labels_flat_loss), swap=True,
    ),
    Port(
        "momentum", Trained,
        (
            Formulation("same", TrainedSame, lambda w: lins(w, "fc1 fc2")),
            Formulation(
                "hand", TrainedSame, lambda w: lins(w, "fc1 fc2"),
                optimizer=lambda model: HandMomentum(0.05, model.parameters()),
            ),
            Formulation("bare", TrainedBare, bare, loss=paddle_entropy_by_hand),
        ),
        {"x": floats(6, 5)}, ints(3, 6), ENTROPY, (torch_momentum, paddle_momentum), steps=3,
    ),
    Port(
        "adam", Trained,
        (
            Formulation(
                "hand", TrainedSame, lambda w: lins(w, "fc1 fc2"),
                optimizer=lambda model: HandAdam(0.01, model.parameters()),
            ),
            Formulation("bare", TrainedBare, bare),
        ),
        {"x": floats(6, 5)}, floats(6, 3), SQUARE, (torch_adam, paddle_adam), steps=3,
    ),
    Port(
        "with_average", WithAverage,
        (
            Formulation("flat", AverageFlat, lambda w: lins(w, {
                "net.0": "fc1", "net.2": "fc2", "ema.0": "shadow1", "ema.2": "shadow2",
            })),
            Formulation("none", AverageNone, lambda w: lins(w, {"net.0": "model.0", "net.2": "model.2"})),
        ),
        {"x": floats(4, 4)}, ints(3, 4), ENTROPY, swap=True,
    ),
    Port(
        "several_models", torch_pair,
        (
            Formulation("named", paddle_pair_named, pair_named),
            Formulation("bare", paddle_pair_bare, pair_bare),
        ),
        {"noise": floats(4, 3), "real": floats(4, 5)}, None, None, (torch_pair_optimizers, paddle_pair_optimizers),
        (torch_pair_step, paddle_pair_step), steps=2,
    ),
    Port(
        "tower", Tower,
        (
            Formulation("flat", TowerFlat, tower_flat),
            Formulation("nested", TowerNested, tower_nested),
            Formulation(
                "backwards",
                lambda: reregistered(renamed(TowerFlat, fc1="c", fc2="a", fc3="e", fc4="b", fc5="d", head="f")()),
                lambda w: tower_flat(w, "d b e a c f"),
            ),
        ),
        {"x": floats(4, 6)}, floats(4, 4), SQUARE, swap=True,
    ),
    Port(
        "sets", Sets,
        (
            Formulation("conv", SetsConv, sets_conv),
            Formulation("flat", SetsFlat, lambda w: lins(w, {"phi1": "l3", "phi2": "l1", "rho1": "l2", "rho2": "l0"})),
        ),
        {"items": floats(3, 5, 4), "mask": bits(3, 5)}, ints(3, 3), ENTROPY,
    ),
    Port(
        "long_tower", Many,
        (
            Formulation("by_kind", ManyByKind, many_by_kind),
            Formulation("stages", ManyStages, many_stages),
        ),
        {"x": floats(5, 4)}, slow=True,
    ),
)  # fmt: skip
