"""Architectures with a mechanism of their own: retention, capsules, flows, scores of sequences and of pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pn
from torch import nn as tn

from ports.port import SQUARE, Formulation, Port, State, floats, ints, lin, lins, same, sames

D, H = 8, 2
K = D // H


def p_weight(*shape: int) -> Any:
    drawn = pn.initializer.Normal(0.0, 0.3)
    return paddle.create_parameter(list(shape), paddle.get_default_dtype(), default_initializer=drawn)


# Differential attention: the difference of two softmaxes.


class Differential(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (tn.Linear(D, D, bias=False) for _ in range(4))
        self.lambda_q, self.lambda_k = (tn.Parameter(0.3 * torch.randn(2, K)) for _ in range(2))
        self.norm = tn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        q, k = (layer(x).view(*x.shape[:2], 2, K).transpose(1, 2) for layer in (self.q_proj, self.k_proj))
        maps = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(K), -1)
        one, other = (self.lambda_q * self.lambda_k).sum(-1).exp()
        mixed = (maps[:, 0] - (one - other + 0.5) * maps[:, 1]) @ self.v_proj(x)
        return self.out_proj(self.norm(mixed))


class DifferentialApart(pn.Layer):
    """Every half of queries and keys is a layer, and so is every vector of the factor."""

    def __init__(self) -> None:
        super().__init__()
        self.q1, self.q2, self.k1, self.k2 = (pn.Linear(D, K, bias_attr=False) for _ in range(4))
        self.v, self.o = (pn.Linear(D, D, bias_attr=False) for _ in range(2))
        self.lq1, self.lq2, self.lk1, self.lk2 = (p_weight(K) for _ in range(4))
        self.ln = pn.LayerNorm(D)

    def scores(self, q: Any, k: Any) -> Any:
        return PF.softmax(paddle.matmul(q, k, transpose_y=True) * K**-0.5)

    def forward(self, x: Any) -> Any:
        factor = paddle.exp((self.lq1 * self.lk1).sum()) - paddle.exp((self.lq2 * self.lk2).sum()) + 0.5
        first, second = self.scores(self.q1(x), self.k1(x)), self.scores(self.q2(x), self.k2(x))
        values = self.v(x)
        return self.o(self.ln(first @ values - factor * (second @ values)))


def differential_apart(w: State) -> State:
    made = {**lins(w, {"v_proj": "v", "out_proj": "o"}), **same(w, "norm", "ln")}
    for x in "qk":
        for i in range(2):
            made[f"{x}{i + 1}.weight"] = w[f"{x}_proj.weight"][i * K : (i + 1) * K].T
            made[f"l{x}{i + 1}"] = w[f"lambda_{x}"][i]
    return made


class DifferentialPacked(pn.Layer):
    """One layer makes queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj, self.proj = pn.Linear(D, 3 * D, bias_attr=False), pn.Linear(D, D, bias_attr=False)
        self.factors = p_weight(2, 2, K)
        self.norm = pn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        q, k, v = self.in_proj(x).split(3, axis=-1)
        q, k = (one.reshape([*x.shape[:2], 2, K]) for one in (q, k))
        maps = PF.softmax(paddle.einsum("bihd,bjhd->hbij", q, k) / math.sqrt(K), axis=-1)
        one, other = paddle.exp(self.factors.prod(0).sum(-1)).unbind()
        return self.proj(self.norm((maps[0] - (one - other + 0.5) * maps[1]) @ v))


def differential_packed(w: State) -> State:
    return {
        "in_proj.weight": np.concatenate([w[f"{x}_proj.weight"] for x in "qkv"]).T,
        "factors": np.stack([w["lambda_q"], w["lambda_k"]]),
        **lin(w, "out_proj", "proj"), **same(w, "norm"),
    }  # fmt: skip


# Retention: attention without a softmax, whose parallel form is a recurrence.


class Retention(tn.Module):
    """All steps at once, with a matrix of decays."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.g_proj = (tn.Linear(D, D, bias=False) for _ in range(4))
        self.group_norm = tn.GroupNorm(H, D)
        self.out_proj = tn.Linear(D, D)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, H, K).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        apart = torch.arange(n)[:, None] - torch.arange(n)
        decay = torch.stack([(1 - 2.0 ** (-2 - h)) ** apart.clamp(min=0).to(x.dtype) for h in range(H)])
        mixed = (q @ k.transpose(-1, -2) * decay.tril()) @ v
        mixed = self.group_norm(mixed.transpose(1, 2).reshape(b * n, D)).view(b, n, D)
        return self.out_proj(TF.silu(self.g_proj(x)) * mixed)


class RetentionSteps(pn.Layer):
    """One step after the other, with a state."""

    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wg = (pn.Linear(D, D, bias_attr=False) for _ in range(4))
        self.norm, self.wo = pn.GroupNorm(H, D), pn.Linear(D, D)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        q, k, v = (f(x).reshape([b, n, H, K]) for f in (self.wq, self.wk, self.wv))
        decay = paddle.to_tensor([1 - 2.0 ** (-2 - h) for h in range(H)], dtype=x.dtype).reshape([H, 1, 1])
        state, given = paddle.zeros([b, H, K, K], dtype=x.dtype), []
        for t in range(n):
            state = decay * state + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
            given.append(self.norm(paddle.einsum("bhk,bhkv->bhv", q[:, t], state).reshape([b, D])))
        return self.wo(PF.silu(self.wg(x)) * paddle.stack(given, axis=1))


class RetentionPacked(pn.Layer):
    """One layer for all four, and the norm of the heads by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.qkvg, self.proj = pn.Linear(D, 4 * D, bias_attr=False), pn.Linear(D, D)
        self.gamma, self.beta = p_weight(H, K), p_weight(H, K)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        parts = self.qkvg(x).reshape([b, n, 4, H, K]).transpose([2, 0, 3, 1, 4])
        place = paddle.arange(n).astype(x.dtype)
        apart = place.unsqueeze(-1) - place
        rate = paddle.log(paddle.to_tensor([1 - 2.0 ** (-2 - h) for h in range(H)], dtype=x.dtype)).reshape([H, 1, 1])
        decay = paddle.tril(paddle.exp(rate * PF.relu(apart)))
        mixed = (((parts[0] @ parts[1].transpose([0, 1, 3, 2])) * decay) @ parts[2]).transpose([0, 2, 1, 3])
        middle = mixed - mixed.mean(-1, keepdim=True)
        mixed = middle / paddle.sqrt((middle**2).mean(-1, keepdim=True) + 1e-5) * self.gamma + self.beta
        return self.proj((PF.silu(parts[3]).transpose([0, 2, 1, 3]) * mixed).flatten(2))


# Radial basis functions in place of an activation.


class Radial(tn.Module):
    """Every input through the same bumps, then one matrix for each bump."""

    def __init__(self) -> None:
        super().__init__()
        self.coefficients = tn.Parameter(0.3 * torch.randn(5, 4, 6))
        self.base = tn.Linear(4, 6)
        self.head = tn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        centres = torch.linspace(-2, 2, 5, dtype=x.dtype)
        bumps = torch.exp(-((x[..., None] - centres) ** 2))
        return self.head(torch.einsum("nik,kio->no", bumps, self.coefficients) + self.base(TF.silu(x)))


class RadialLinear(pn.Layer):
    """The bumps of all inputs, flat, through one layer without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.spline, self.plain, self.last = pn.Linear(20, 6, bias_attr=False), pn.Linear(4, 6), pn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        centres = paddle.to_tensor([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=x.dtype)
        bumps = paddle.exp(-paddle.square(x.unsqueeze(-1) - centres)).flatten(1)
        return self.last(self.spline(bumps) + self.plain(PF.silu(x)))


class RadialJoined(pn.Layer):
    """Bumps and activations side by side, bump by bump."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = pn.Linear(24, 6), pn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        given = [PF.silu(x), *(paddle.exp(-((x + 2 - i) ** 2)) for i in range(5))]
        return self.out(self.mix(paddle.concat(given, axis=-1)))


def radial_joined(w: State) -> State:
    table = w["coefficients"].reshape(20, 6)
    return {
        "mix.weight": np.concatenate([w["base.weight"].T, table]), "mix.bias": w["base.bias"], **lin(w, "head", "out"),
    }  # fmt: skip


# A network that makes the weights of another one.


class Hyper(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = tn.Embedding(7, 5)
        self.make_weight, self.make_bias = tn.Linear(5, 4 * 6), tn.Linear(5, 6)
        self.out = tn.Linear(6, 3)

    def forward(self, task: Any, x: Any) -> Any:
        code = torch.tanh(self.table(task))
        weight = self.make_weight(code).view(-1, 6, 4)
        return self.out(TF.relu((weight @ x.unsqueeze(-1)).squeeze(-1) + self.make_bias(code)))


class HyperOne(pn.Layer):
    """Weight and bias from one layer, the weight the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.codes, self.make, self.out = pn.Embedding(7, 5), pn.Linear(5, 30), pn.Linear(6, 3)

    def forward(self, task: Any, x: Any) -> Any:
        made = self.make(PF.tanh(self.codes(task)))
        weight = made[:, :24].reshape([-1, 4, 6])
        return self.out(PF.relu(paddle.einsum("ni,nio->no", x, weight) + made[:, 24:]))


def hyper_one(w: State) -> State:
    matrix = w["make_weight.weight"].reshape(6, 4, 5).transpose(1, 0, 2).reshape(24, 5)
    bias = w["make_weight.bias"].reshape(6, 4).T.reshape(-1)
    return {
        **same(w, "table", "codes"), "make.weight": np.concatenate([matrix, w["make_bias.weight"]]).T,
        "make.bias": np.concatenate([bias, w["make_bias.bias"]]), **lin(w, "out", "out"),
    }  # fmt: skip


class HyperBilinear(pn.Layer):
    """The product of code and input as a tensor of three axes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = pn.Embedding(7, 5)
        self.core, self.shift = p_weight(6, 5, 4), p_weight(6, 4)
        self.bias, self.head = pn.Linear(5, 6), pn.Linear(6, 3)

    def forward(self, task: Any, x: Any) -> Any:
        code = PF.tanh(self.table(task))
        made = paddle.einsum("nc,oci,ni->no", code, self.core, x) + x @ self.shift.t()
        return self.head(PF.relu(made + self.bias(code)))


def hyper_bilinear(w: State) -> State:
    return {
        **same(w, "table"), "core": w["make_weight.weight"].reshape(6, 4, 5).transpose(0, 2, 1),
        "shift": w["make_weight.bias"].reshape(6, 4), **lin(w, "make_bias", "bias"), **lin(w, "out", "head"),
    }  # fmt: skip


# A head of mixtures.


class Density(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = tn.Sequential(tn.Linear(5, 9), tn.Tanh())
        self.weights, self.means, self.scales = tn.Linear(9, 4), tn.Linear(9, 4), tn.Linear(9, 4)

    def forward(self, x: Any, value: Any) -> Any:
        x = self.body(x)
        scale = TF.softplus(self.scales(x)) + 0.1
        score = TF.log_softmax(self.weights(x), -1) - 0.5 * ((value - self.means(x)) / scale) ** 2 - scale.log()
        return torch.logsumexp(score, -1)


class DensityPacked(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = pn.Linear(5, 9), pn.Linear(9, 12)

    def forward(self, x: Any, value: Any) -> Any:
        means, scales, weights = self.head(PF.tanh(self.fc(x))).chunk(3, axis=-1)
        scale = PF.softplus(scales) + 0.1
        chance = PF.softmax(weights) * paddle.exp(-0.5 * ((value - means) / scale) ** 2) / scale
        return paddle.log(chance.sum(-1))


def density_packed(w: State) -> State:
    names = ("means", "scales", "weights")
    return {
        **lin(w, "body.0", "fc"), "head.weight": np.concatenate([w[f"{x}.weight"] for x in names]).T,
        "head.bias": np.concatenate([w[f"{x}.bias"] for x in names]),
    }  # fmt: skip


class DensityComponents(pn.Layer):
    """A layer for each component: its logit, mean and scale."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = pn.Sequential(pn.Linear(5, 9), pn.Tanh())
        self.components = pn.LayerList([pn.Linear(9, 3) for _ in range(4)])

    def forward(self, x: Any, value: Any) -> Any:
        x = self.trunk(x)
        logit, mean, raw = paddle.stack([one(x) for one in self.components], axis=-1).unbind(1)
        scale = PF.softplus(raw) + 0.1
        error = paddle.square((value - mean) / scale) / 2 + paddle.log(scale)
        return paddle.logsumexp(logit - error, axis=-1) - paddle.logsumexp(logit, axis=-1)


def density_components(w: State) -> State:
    made = lin(w, "body.0", "trunk.0")
    for i in range(4):
        rows = [w[f"{x}.weight"][i] for x in ("weights", "means", "scales")]
        made[f"components.{i}.weight"] = np.stack(rows, -1)
        made[f"components.{i}.bias"] = np.array([w[f"{x}.bias"][i] for x in ("weights", "means", "scales")])
    return made


# Scores of pairs.


class Bilinear(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = tn.Linear(5, 4), tn.Linear(6, 4)
        self.score = tn.Bilinear(4, 4, 3)

    def forward(self, one: Any, other: Any) -> Any:
        return self.score(torch.tanh(self.left(one)), torch.relu(self.right(other)))


class BilinearOuter(pn.Layer):
    """The outer product, flat, through one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc_a, self.fc_b, self.fc = pn.Linear(5, 4), pn.Linear(6, 4), pn.Linear(16, 3)

    def forward(self, one: Any, other: Any) -> Any:
        a, b = PF.tanh(self.fc_a(one)), PF.relu(self.fc_b(other))
        return self.fc((a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(1))


def bilinear_outer(w: State) -> State:
    return {
        **lins(w, {"left": "fc_a", "right": "fc_b"}), "fc.weight": w["score.weight"].reshape(3, 16).T,
        "fc.bias": w["score.bias"],
    }  # fmt: skip


class BilinearFramework(pn.Layer):
    """The framework's layer, given the two in the other order."""

    def __init__(self) -> None:
        super().__init__()
        self.second, self.first = pn.Linear(6, 4), pn.Linear(5, 4)
        self.pair = pn.Bilinear(4, 4, 3)

    def forward(self, one: Any, other: Any) -> Any:
        return self.pair(PF.relu(self.second(other)), PF.tanh(self.first(one)))


def bilinear_framework(w: State) -> State:
    return {
        **lins(w, {"left": "first", "right": "second"}), "pair.weight": w["score.weight"].transpose(0, 2, 1),
        "pair.bias": w["score.bias"][None],
    }  # fmt: skip


class Interactions(tn.Module):
    """A factorization machine: half of the square of the sum without the sum of squares."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.first_order = tn.Embedding(12, 6), tn.Embedding(12, 1)
        self.bias = tn.Parameter(torch.zeros(1))
        self.deep = tn.Sequential(tn.Linear(24, 7), tn.ReLU(), tn.Linear(7, 1))

    def forward(self, fields: Any) -> Any:
        x = self.embedding(fields)
        pairs = 0.5 * (x.sum(1) ** 2 - (x**2).sum(1)).sum(-1, keepdim=True)
        return self.bias + self.first_order(fields).sum(1) + pairs + self.deep(x.flatten(1))


class InteractionsPairs(pn.Layer):
    """Every pair's product."""

    def __init__(self) -> None:
        super().__init__()
        self.factors, self.linear = p_weight(12, 6), p_weight(12)
        self.mlp1, self.mlp2 = pn.Linear(24, 7), pn.Linear(7, 1)
        self.offset = p_weight(1)

    def forward(self, fields: Any) -> Any:
        x = PF.embedding(fields, self.factors)
        total = self.offset + paddle.gather(self.linear, fields.flatten()).reshape(fields.shape).sum(1)
        for i in range(4):
            for j in range(i):
                total = total + (x[:, i] * x[:, j]).sum(-1)
        return total.unsqueeze(-1) + self.mlp2(PF.relu(self.mlp1(x.flatten(1))))


class InteractionsJoined(pn.Layer):
    """One table with the linear weights beside the factors; the products as a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.net = pn.Embedding(12, 7), pn.Sequential(pn.Linear(24, 7), pn.ReLU(), pn.Linear(7, 1))
        self.b = p_weight(1)

    def forward(self, fields: Any) -> Any:
        both = self.table(fields)
        x = both[:, :, 1:]
        products = paddle.matmul(x, x, transpose_y=True)
        pairs = paddle.triu(products, diagonal=1).sum([1, 2]).unsqueeze(-1)
        return both[:, :, 0].sum(1, keepdim=True) + pairs + self.net(x.reshape([-1, 24])) + self.b


# Crosses of features.


class Crosses(tn.Module):
    """Deep and cross: each layer multiplies the input by a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.crosses = tn.ModuleList(tn.Linear(6, 1, bias=False) for _ in range(3))
        self.biases = tn.ParameterList(tn.Parameter(torch.zeros(6)) for _ in range(3))
        self.head = tn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        given = x
        for layer, bias in zip(self.crosses, self.biases, strict=True):
            x = given * layer(x) + bias + x
        return self.head(x)


class CrossesStored(pn.Layer):
    """All vectors in two matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels, self.biases = p_weight(3, 6), p_weight(3, 6)
        self.fc = pn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        made = x
        for i in range(3):
            made = x * (made * self.kernels[i]).sum(-1, keepdim=True) + self.biases[i] + made
        return self.fc(made)


class CrossesOuter(pn.Layer):
    """By the outer product, as the paper writes it."""

    def __init__(self) -> None:
        super().__init__()
        for i in range(3):
            setattr(self, f"w{i}", p_weight(6, 1))
            setattr(self, f"b{i}", p_weight(6))
        self.out = pn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        made = x
        for i in range(3):
            outer = x.unsqueeze(2) @ made.unsqueeze(1)
            made = (outer @ getattr(self, f"w{i}")).squeeze(-1) + getattr(self, f"b{i}") + made
        return self.out(made)


# Capsules: routing by agreement.


class Capsules(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.primary = tn.Linear(6, 4 * 3)
        self.votes = tn.Parameter(0.4 * torch.randn(4, 3, 3, 5))

    def forward(self, x: Any) -> Any:
        given = self.squash(self.primary(x).view(-1, 4, 3))
        votes = torch.einsum("nid,ijdo->nijo", given, self.votes)
        logits = torch.zeros(*votes.shape[:3], dtype=x.dtype)
        for _ in range(2):
            made = self.squash((torch.softmax(logits, 2)[..., None] * votes).sum(1))
            logits = logits + (votes * made[:, None]).sum(-1)
        return self.squash((torch.softmax(logits, 2)[..., None] * votes).sum(1))

    def squash(self, x: Any) -> Any:
        square = (x**2).sum(-1, keepdim=True)
        return x * square / (1 + square) / torch.sqrt(square + 1e-9)


def p_squash(x: Any) -> Any:
    square = paddle.square(x).sum(-1, keepdim=True)
    return square / (1 + square) * x / paddle.sqrt(square + 1e-9)


class CapsulesMatmul(pn.Layer):
    """A matrix of votes for each capsule."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = pn.Linear(6, 12)
        self.matrix = p_weight(4, 3, 15)

    def forward(self, x: Any) -> Any:
        given = p_squash(self.fc(x).reshape([-1, 4, 3])).unsqueeze(-1)
        votes = (given * self.matrix).sum(2).reshape([-1, 4, 3, 5])
        shares = paddle.full([x.shape[0], 4, 3, 1], 1 / 3, dtype=x.dtype)
        logits = 0
        for turn in range(3):
            made = p_squash((shares * votes).sum(1, keepdim=True))
            if turn < 2:
                logits = logits + (votes * made).sum(-1, keepdim=True)
                shares = PF.softmax(logits, axis=2)
        return made.squeeze(1)


class CapsulesLayers(pn.Layer):
    """A layer for the votes of each capsule of the first kind."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = pn.Linear(6, 12)
        self.capsules = pn.LayerList([pn.Linear(3, 15, bias_attr=False) for _ in range(4)])

    def forward(self, x: Any) -> Any:
        parts = [p_squash(one) for one in self.stem(x).chunk(4, axis=-1)]
        votes = paddle.stack([f(p).reshape([-1, 3, 5]) for f, p in zip(self.capsules, parts, strict=True)], axis=1)
        logits = paddle.zeros([x.shape[0], 4, 3], dtype=x.dtype)
        for _ in range(2):
            made = p_squash(paddle.einsum("nij,nijo->njo", PF.softmax(logits), votes))
            logits = logits + paddle.einsum("nijo,njo->nij", votes, made)
        return p_squash(paddle.einsum("nij,nijo->njo", PF.softmax(logits), votes))


# Scores of label sequences.


class Transitions(tn.Module):
    """The forward algorithm of a conditional random field, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.emit = tn.Linear(5, 4)
        self.transitions = tn.Parameter(0.5 * torch.randn(4, 4))
        self.start, self.end = (tn.Parameter(0.5 * torch.randn(4)) for _ in range(2))

    def forward(self, x: Any) -> Any:
        emitted = self.emit(x)
        alpha = self.start + emitted[:, 0]
        for t in range(1, x.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + self.transitions, 1) + emitted[:, t]
        return torch.logsumexp(alpha + self.end, -1), emitted


class TransitionsTo(pn.Layer):
    """The matrix from column to row."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = pn.Linear(5, 4)
        self.trans, self.begin, self.stop = p_weight(4, 4), p_weight(4), p_weight(4)

    def forward(self, x: Any) -> Any:
        emitted = self.fc(x)
        steps = emitted.transpose([1, 0, 2])
        alpha = self.begin + steps[0]
        for one in steps[1:]:
            alpha = one + paddle.logsumexp(alpha.unsqueeze(1) + self.trans, axis=-1)
        return paddle.logsumexp(self.stop + alpha, axis=-1), emitted


class TransitionsAugmented(pn.Layer):
    """Start and end are labels, too, and the recurrence runs backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.proj, self.table = pn.Linear(5, 4), p_weight(5, 5)

    def forward(self, x: Any) -> Any:
        emitted = self.proj(x)
        beta = self.table[:4, 4]
        for t in range(x.shape[1] - 1, 0, -1):
            beta = paddle.logsumexp(self.table[:4, :4] + (emitted[:, t] + beta).unsqueeze(1), axis=-1)
        return paddle.logsumexp(self.table[4, :4] + emitted[:, 0] + beta, axis=-1), emitted


# A convolution whose kernel depends on a style.


class Modulated(tn.Module):
    """A kernel of its own for each picture, as groups of one convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.affine = tn.Linear(5, 4)
        self.weight = tn.Parameter(0.3 * torch.randn(6, 4, 3, 3))
        self.to_rgb = tn.Conv2d(6, 3, 1)

    def forward(self, x: Any, style: Any) -> Any:
        b, c, h, w = x.shape
        kernel = self.weight * (1 + self.affine(style)).view(b, 1, c, 1, 1)
        kernel = kernel * torch.rsqrt((kernel**2).sum((2, 3, 4), keepdim=True) + 1e-8)
        y = TF.conv2d(x.reshape(1, b * c, h, w), kernel.view(b * 6, c, 3, 3), padding=1, groups=b)
        return self.to_rgb(TF.leaky_relu(y.view(b, 6, h, w), 0.2))


class ModulatedInputs(pn.Layer):
    """One kernel; inputs and outputs are scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.style, self.conv = pn.Linear(5, 4), pn.Conv2D(4, 6, 3, padding=1, bias_attr=False)
        self.rgb = pn.Conv2D(6, 3, 1)

    def forward(self, x: Any, style: Any) -> Any:
        scale = 1 + self.style(style)
        y = self.conv(x * scale.unsqueeze(-1).unsqueeze(-1))
        size = paddle.matmul(scale**2, (self.conv.weight**2).sum([2, 3]), transpose_y=True)
        return self.rgb(PF.leaky_relu(y * paddle.rsqrt(size + 1e-8).unsqueeze(-1).unsqueeze(-1), 0.2))


class ModulatedUnfold(pn.Layer):
    """Windows times a matrix for each picture."""

    def __init__(self) -> None:
        super().__init__()
        self.mod, self.kernel, self.last = pn.Linear(5, 4), p_weight(4, 9, 6), pn.Linear(6, 3)

    def forward(self, x: Any, style: Any) -> Any:
        b, _, h, w = x.shape
        kernel = self.kernel * (self.mod(style) + 1).reshape([b, 4, 1, 1])
        kernel = (kernel / paddle.sqrt(paddle.square(kernel).sum([1, 2], keepdim=True) + 1e-8)).reshape([b, 36, 6])
        rows = PF.unfold(x, 3, paddings=1).transpose([0, 2, 1])
        return self.last(PF.leaky_relu(rows @ kernel, 0.2)).transpose([0, 2, 1]).reshape([b, 3, h, w])


def modulated_unfold(w: State) -> State:
    return {
        **lin(w, "affine", "mod"), "kernel": w["weight"].transpose(1, 2, 3, 0).reshape(4, 9, 6),
        "last.weight": w["to_rgb.weight"][:, :, 0, 0].T, "last.bias": w["to_rgb.bias"],
    }  # fmt: skip


# A flow of coupling layers.


class Coupling(tn.Module):
    """With masks: what is kept is multiplied by one, what is changed by zero."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = tn.ModuleList(tn.Sequential(tn.Linear(6, 7), tn.Tanh(), tn.Linear(7, 6)) for _ in range(2))
        self.shifts = tn.ModuleList(tn.Sequential(tn.Linear(6, 7), tn.Tanh(), tn.Linear(7, 6)) for _ in range(2))
        self.register_buffer("masks", torch.tensor([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]))

    def forward(self, x: Any) -> Any:
        total = 0
        for mask, scale, shift in zip(self.masks, self.scales, self.shifts, strict=True):
            kept = x * mask
            s, t = torch.tanh(scale(kept)) * (1 - mask), shift(kept) * (1 - mask)
            x, total = kept + (1 - mask) * (x * s.exp() + t), total + s.sum(-1)
        return x, total


class CouplingJoined(pn.Layer):
    """With the masks worked out; one network has both parts of a step side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.first = pn.LayerList([pn.Linear(6, 14) for _ in range(2)])
        self.s_out = pn.LayerList([pn.Linear(7, 6) for _ in range(2)])
        self.t_out = pn.LayerList([pn.Linear(7, 6) for _ in range(2)])

    def forward(self, x: Any) -> Any:
        logdet = paddle.zeros([x.shape[0]], dtype=x.dtype)
        for i in range(2):
            mask = paddle.to_tensor([1.0 - i] * 3 + [float(i)] * 3, dtype=x.dtype)
            left, right = PF.tanh(self.first[i](mask * x)).chunk(2, axis=-1)
            s = PF.tanh(self.s_out[i](left))
            x = paddle.where(mask == 1, x, x * paddle.exp(s) + self.t_out[i](right))
            logdet = logdet + (s * (1 - mask)).sum(-1)
        return x, logdet


def coupling_joined(w: State) -> State:
    made = {}
    for i in range(2):
        pair = (f"scales.{i}.0", f"shifts.{i}.0")
        made[f"first.{i}.weight"] = np.concatenate([w[f"{x}.weight"] for x in pair]).T
        made[f"first.{i}.bias"] = np.concatenate([w[f"{x}.bias"] for x in pair])
        made |= lins(w, {f"scales.{i}.2": f"s_out.{i}", f"shifts.{i}.2": f"t_out.{i}"})
    return made


class CouplingHalves(pn.Layer):
    """Without masks: the halves apart, so that every network has only the weights that it uses."""

    def __init__(self) -> None:
        super().__init__()
        self.s1, self.s2, self.t1, self.t2 = (
            pn.Sequential(pn.Linear(3, 7), pn.Tanh(), pn.Linear(7, 3)) for _ in range(4)
        )

    def forward(self, x: Any) -> Any:
        a, b = x.chunk(2, axis=-1)
        first = PF.tanh(self.s1(a))
        b = b * paddle.exp(first) + self.t1(a)
        second = PF.tanh(self.s2(b))
        a = a * paddle.exp(second) + self.t2(b)
        return paddle.concat([a, b], axis=-1), first.sum(-1) + second.sum(-1)


def coupling_halves(w: State) -> State:
    made = {}
    for kind, short in (("scales", "s"), ("shifts", "t")):
        for i in range(2):
            kept, changed = (slice(0, 3), slice(3, 6)) if not i else (slice(3, 6), slice(0, 3))
            old, new = f"{kind}.{i}", f"{short}{i + 1}"
            made |= {f"{new}.0.weight": w[f"{old}.0.weight"][:, kept].T, f"{new}.0.bias": w[f"{old}.0.bias"]}
            made[f"{new}.2.weight"] = w[f"{old}.2.weight"][changed].T
            made[f"{new}.2.bias"] = w[f"{old}.2.bias"][changed]
    return made


# A block whose attention and perceptron read the same norm.


class Parallel(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = tn.LayerNorm(D)
        self.query, self.key, self.value = (tn.Linear(D, D, bias=False) for _ in range(3))
        self.q_norm, self.k_norm = tn.LayerNorm(K), tn.LayerNorm(K)
        self.up, self.attn_out, self.down = tn.Linear(D, 12), tn.Linear(D, D), tn.Linear(12, D)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        y = self.norm(x)
        q, k, v = (f(y).view(b, n, H, K).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = TF.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v).transpose(1, 2).flatten(2)
        return x + self.attn_out(mixed) + self.down(TF.gelu(self.up(y)))


class ParallelFused(pn.Layer):
    """One layer before and one behind both; the biases that one of them lacks are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.ln, self.qn, self.kn = pn.LayerNorm(D), pn.LayerNorm(K), pn.LayerNorm(K)
        self.fused_in, self.fused_out = pn.Linear(D, 12 + 3 * D, bias_attr=False), pn.Linear(12 + D, D)
        self.mlp_bias = p_weight(12)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        hidden, q, k, v = self.fused_in(self.ln(x)).split([12, D, D, D], axis=-1)
        q, k, v = (one.reshape([b, n, H, K]).transpose([0, 2, 1, 3]) for one in (q, k, v))
        scores = PF.softmax(self.qn(q) @ self.kn(k).transpose([0, 1, 3, 2]) / math.sqrt(K), axis=-1)
        mixed = (scores @ v).transpose([0, 2, 1, 3]).reshape([b, n, D])
        return x + self.fused_out(paddle.concat([mixed, PF.gelu(hidden + self.mlp_bias)], axis=-1))


def parallel_fused(w: State) -> State:
    rows = [w[f"{x}.weight"] for x in ("up", "query", "key", "value")]
    return {
        **sames(w, {"norm": "ln", "q_norm": "qn", "k_norm": "kn"}), "fused_in.weight": np.concatenate(rows).T,
        "mlp_bias": w["up.bias"],
        "fused_out.weight": np.concatenate([w["attn_out.weight"].T, w["down.weight"].T]),
        "fused_out.bias": w["attn_out.bias"] + w["down.bias"],
    }  # fmt: skip


class ParallelApart(pn.Layer):
    """Separate layers, normalised by hand, called in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.fc2, self.fc1 = pn.Linear(12, D), pn.Linear(D, 12)
        self.wo, self.wv, self.wk, self.wq = pn.Linear(D, D), *(pn.Linear(D, D, bias_attr=False) for _ in range(3))
        self.scale, self.shift = p_weight(D), p_weight(D)
        self.norm_k, self.norm_q = pn.LayerNorm(K), pn.LayerNorm(K)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        y = (x - x.mean(-1, keepdim=True)) * paddle.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)
        y = y * self.scale + self.shift
        hidden = self.fc2(PF.gelu(self.fc1(y)))
        v, k, q = (f(y).reshape([b, n, H, K]) for f in (self.wv, self.wk, self.wq))
        scores = paddle.einsum("bihd,bjhd->bhij", self.norm_q(q), self.norm_k(k)) * K**-0.5
        return hidden + self.wo(paddle.einsum("bhij,bjhd->bihd", PF.softmax(scores), v).flatten(2)) + x


def parallel_apart(w: State) -> State:
    names = {"down": "fc2", "up": "fc1", "attn_out": "wo", "query": "wq", "key": "wk", "value": "wv"}
    return {
        **lins(w, names), "scale": w["norm.weight"], "shift": w["norm.bias"],
        **sames(w, {"q_norm": "norm_q", "k_norm": "norm_k"}),
    }  # fmt: skip


# Attention over the edges of a graph.


class EdgeAttention(tn.Module):
    """A vector on both ends side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.project = tn.Linear(5, 6, bias=False)
        self.attend = tn.Linear(12, 1, bias=False)
        self.out = tn.Linear(6, 3)

    def forward(self, nodes: Any, edges: Any) -> Any:
        h = self.project(nodes)
        n = h.shape[0]
        both = torch.cat([h[:, None].expand(n, n, 6), h[None].expand(n, n, 6)], -1)
        score = TF.leaky_relu(self.attend(both).squeeze(-1), 0.2).masked_fill(edges + torch.eye(n) == 0, -1e9)
        return self.out(TF.elu(torch.softmax(score, -1) @ h))


class EdgeAttentionSums(pn.Layer):
    """A number for each end, added."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.head = pn.Linear(5, 6, bias_attr=False), pn.Linear(6, 3)
        self.source, self.target = p_weight(6), p_weight(6)

    def forward(self, nodes: Any, edges: Any) -> Any:
        h = self.lin(nodes)
        score = (h * self.target).sum(-1).unsqueeze(1) + (h * self.source).sum(-1).unsqueeze(0)
        near = edges + paddle.eye(h.shape[0]).astype(edges.dtype) > 0
        score = paddle.where(near, PF.leaky_relu(score, 0.2), paddle.full_like(score, -1e9))
        return self.head(PF.elu(PF.softmax(score, axis=1) @ h))


class EdgeAttentionStored(pn.Layer):
    """Both vectors in a matrix, and exponentials divided by their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.a, self.fc = p_weight(5, 6), p_weight(2, 6), pn.Linear(6, 3)

    def forward(self, nodes: Any, edges: Any) -> Any:
        h = paddle.matmul(nodes, self.w)
        to, by = paddle.matmul(self.a, h, transpose_y=True).unbind()
        near = (edges + paddle.eye(h.shape[0]).astype(edges.dtype) > 0).astype(h.dtype)
        power = paddle.exp(PF.leaky_relu(to.unsqueeze(-1) + by, 0.2)) * near
        return self.fc(PF.elu(power @ h / power.sum(-1, keepdim=True)))


# Mixing with the step before.


class TimeMixing(tn.Module):
    """RWKV's: averages with learned decays, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.mix_k, self.mix_v, self.mix_r = (tn.Parameter(torch.rand(D)) for _ in range(3))
        self.key, self.value, self.receptance, self.output = (tn.Linear(D, D, bias=False) for _ in range(4))
        self.decay, self.first = (tn.Parameter(torch.randn(D)) for _ in range(2))

    def forward(self, x: Any) -> Any:
        before = TF.pad(x, (0, 0, 1, -1))
        k, v, r = (
            layer(x * mix + before * (1 - mix))
            for layer, mix in ((self.key, self.mix_k), (self.value, self.mix_v), (self.receptance, self.mix_r))
        )
        top, low, given = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), []
        for t in range(x.shape[1]):
            now = torch.exp(self.first + k[:, t])
            given.append((top + now * v[:, t]) / (low + now))
            power, fade = torch.exp(k[:, t]), torch.exp(-torch.exp(self.decay))
            top, low = fade * top + power * v[:, t], fade * low + power
        return self.output(torch.sigmoid(r) * torch.stack(given, 1))


class TimeMixingMatrix(pn.Layer):
    """All steps at once: weights of every step for every other."""

    def __init__(self) -> None:
        super().__init__()
        self.mixes = p_weight(3, D)
        self.r, self.k, self.v, self.o = (pn.Linear(D, D, bias_attr=False) for _ in range(4))
        self.w, self.u = p_weight(D), p_weight(D)

    def forward(self, x: Any) -> Any:
        n = x.shape[1]
        before = paddle.concat([paddle.zeros_like(x[:, :1]), x[:, :-1]], axis=1)
        r, k, v = (f(before + (x - before) * self.mixes[i]) for i, f in enumerate((self.r, self.k, self.v)))
        place = paddle.arange(n).astype(x.dtype)
        apart = (place.unsqueeze(-1) - place - 1).unsqueeze(-1)
        past = paddle.exp(-paddle.exp(self.w) * PF.relu(apart)) * (apart >= 0).astype(x.dtype)
        share = past + paddle.exp(self.u) * paddle.eye(n, dtype=x.dtype).unsqueeze(-1)
        power = paddle.exp(k)
        top, low = (paddle.einsum("ijd,bjd->bid", share, one) for one in (power * v, power))
        return self.o(PF.sigmoid(r) * top / low)


def time_mixing_matrix(w: State) -> State:
    names = {"receptance": "r", "key": "k", "value": "v", "output": "o"}
    return {
        "mixes": np.stack([w["mix_r"], w["mix_k"], w["mix_v"]]), "w": w["decay"], "u": w["first"], **lins(w, names),
    }  # fmt: skip


class TimeMixingSteps(pn.Layer):
    """Step by step, with the decay as a power, and the states as two parts of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.time_mix = pn.ParameterList([p_weight(1, 1, D) for _ in range(3)])
        self.kv, self.gate, self.out = (pn.Linear(D, D, bias_attr=False) for _ in range(3))
        self.v = pn.Linear(D, D, bias_attr=False)
        self.time_first, self.time_decay = p_weight(D), p_weight(D)

    def forward(self, x: Any) -> Any:
        before = PF.pad(x, [0, 0, 1, 0, 0, 0], pad_from_left_axis=False)[:, :-1]
        a, b, c = (x * m + before * (1 - m) for m in self.time_mix)
        power, values = paddle.exp(self.kv(a)), self.v(b)
        both, given = paddle.zeros([2, x.shape[0], D], dtype=x.dtype), []
        for t in range(x.shape[1]):
            now = paddle.stack([power[:, t] * values[:, t], power[:, t]])
            top, low = (both + paddle.exp(self.time_first) * now).unbind()
            given.append(top / low)
            both = paddle.exp(-paddle.exp(self.time_decay)) * both + now
        return self.out(PF.sigmoid(self.gate(c)) * paddle.stack(given, axis=1))


def time_mixing_steps(w: State) -> State:
    names = {"key": "kv", "value": "v", "receptance": "gate", "output": "out"}
    mixes = {f"time_mix.{i}": w[f"mix_{x}"][None, None] for i, x in enumerate("kvr")}
    return {**mixes, "time_first": w["first"], "time_decay": w["decay"], **lins(w, names)}


# Groups of channels that are shuffled.


class Shuffled(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.depth = tn.Conv2d(6, 8, 1, groups=2), tn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.norm, self.last = tn.BatchNorm2d(8), tn.Conv2d(8, 6, 1, groups=2)

    def forward(self, image: Any) -> Any:
        x = TF.relu(self.first(image))
        b, c, h, w = x.shape
        x = x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)
        return image + self.last(self.norm(self.depth(x)))


class ShuffledApart(pn.Layer):
    """A layer for each group; the shuffle is an order of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pn.Conv2D(3, 4, 1), pn.Conv2D(3, 4, 1)
        self.dw, self.bn = pn.Conv2D(8, 8, 3, padding=1, groups=8, bias_attr=False), pn.BatchNorm2D(8)
        self.c, self.d = pn.Conv2D(4, 3, 1), pn.Conv2D(4, 3, 1)

    def forward(self, image: Any) -> Any:
        left, right = image.chunk(2, axis=1)
        x = PF.relu(paddle.concat([self.a(left), self.b(right)], axis=1))
        x = self.bn(self.dw(paddle.index_select(x, paddle.to_tensor([0, 4, 1, 5, 2, 6, 3, 7]), axis=1)))
        return image + paddle.concat([self.c(x[:, :4]), self.d(x[:, 4:])], axis=1)


def shuffled_apart(w: State) -> State:
    made = {**same(w, "depth", "dw"), **same(w, "norm", "bn")}
    for old, names in (("first", "ab"), ("last", "cd")):
        for leaf in ("weight", "bias"):
            made |= {f"{n}.{leaf}": half for n, half in zip(names, np.split(w[f"{old}.{leaf}"], 2), strict=True)}
    return made


class ShuffledLater(pn.Layer):
    """The channels stay where they are: the layer in the middle is stored in the other order."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce = pn.Conv2D(6, 8, 1, groups=2)
        self.middle = pn.Conv2D(8, 8, 3, padding=1, groups=8, bias_attr=False)
        self.bn, self.expand = pn.BatchNorm2D(8), pn.Conv2D(8, 6, 1, groups=2)

    def forward(self, image: Any) -> Any:
        x = self.bn(self.middle(PF.relu(self.reduce(image))))
        b, _, h, w = x.shape
        return self.expand(x.reshape([b, 2, 4, h, w]).transpose([0, 2, 1, 3, 4]).reshape([b, 8, h, w])) + image


def shuffled_later(w: State) -> State:
    order = np.arange(8).reshape(4, 2).T.reshape(-1)
    made = {**same(w, "first", "reduce"), **same(w, "last", "expand"), "middle.weight": w["depth.weight"][order]}
    return made | {name: array[order] for name, array in same(w, "norm", "bn").items()}


def t_both(outputs: Any, targets: Any) -> Any:
    return ((outputs[0] - targets) ** 2).mean() + outputs[1].square().mean()


def p_both(outputs: Any, targets: Any) -> Any:
    return PF.mse_loss(outputs[0], targets) + (outputs[1] ** 2).mean()


BOTH = (t_both, p_both)
_X, _Y = {"x": floats(2, 5, D)}, floats(2, 5, D)

PORTS = (
    Port(
        "differential_attention", Differential,
        (
            Formulation("apart", DifferentialApart, differential_apart),
            Formulation("packed", DifferentialPacked, differential_packed),
        ),
        _X, _Y, SQUARE, swap=True,
    ),
    Port(
        "retention", Retention,
        (
            Formulation("steps", RetentionSteps, lambda w: {
                **lins(w, {"q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "g_proj": "wg", "out_proj": "wo"}),
                **same(w, "group_norm", "norm"),
            }),
            Formulation("packed", RetentionPacked, lambda w: {
                "qkvg.weight": np.concatenate([w[f"{x}_proj.weight"] for x in "qkvg"]).T, **lin(w, "out_proj", "proj"),
                "gamma": w["group_norm.weight"].reshape(H, K), "beta": w["group_norm.bias"].reshape(H, K),
            }),
        ),
        _X, _Y, SQUARE, swap=True,
    ),
    Port(
        "radial_basis", Radial,
        (
            Formulation("linear", RadialLinear, lambda w: {
                "spline.weight": w["coefficients"].transpose(1, 0, 2).reshape(20, 6),
                **lins(w, {"base": "plain", "head": "last"}),
            }),
            Formulation("joined", RadialJoined, radial_joined),
        ),
        {"x": floats(7, 4)}, floats(7, 3), SQUARE, swap=True,
    ),
    Port(
        "hyper_network", Hyper,
        (
            Formulation("one", HyperOne, hyper_one),
            Formulation("bilinear", HyperBilinear, hyper_bilinear),
        ),
        {"task": ints(7, 6), "x": floats(6, 4)}, floats(6, 3), SQUARE, swap=True,
    ),
    Port(
        "density_head", Density,
        (
            Formulation("packed", DensityPacked, density_packed),
            Formulation("components", DensityComponents, density_components),
        ),
        {"x": floats(9, 5), "value": floats(9, 1)}, floats(9), SQUARE, swap=True,
    ),
    Port(
        "bilinear_score", Bilinear,
        (
            Formulation("outer", BilinearOuter, bilinear_outer),
            Formulation("framework", BilinearFramework, bilinear_framework),
        ),
        {"one": floats(8, 5), "other": floats(8, 6)}, floats(8, 3), SQUARE, swap=True,
    ),
    Port(
        "pair_interactions", Interactions,
        (
            Formulation("pairs", InteractionsPairs, lambda w: {
                "factors": w["embedding.weight"], "linear": w["first_order.weight"][:, 0], "offset": w["bias"],
                **lins(w, {"deep.0": "mlp1", "deep.2": "mlp2"}),
            }),
            Formulation("joined", InteractionsJoined, lambda w: {
                "table.weight": np.concatenate([w["first_order.weight"], w["embedding.weight"]], 1), "b": w["bias"],
                **lins(w, {"deep.0": "net.0", "deep.2": "net.2"}),
            }),
        ),
        {"fields": ints(12, 6, 4)}, floats(6, 1), SQUARE, swap=True,
    ),
    Port(
        "cross_network", Crosses,
        (
            Formulation("stored", CrossesStored, lambda w: {
                "kernels": np.concatenate([w[f"crosses.{i}.weight"] for i in range(3)]),
                "biases": np.stack([w[f"biases.{i}"] for i in range(3)]), **lin(w, "head", "fc"),
            }),
            Formulation("outer", CrossesOuter, lambda w: {
                **{f"w{i}": w[f"crosses.{i}.weight"].T for i in range(3)},
                **{f"b{i}": w[f"biases.{i}"] for i in range(3)}, **lin(w, "head", "out"),
            }),
        ),
        {"x": floats(7, 6)}, floats(7, 2), SQUARE, swap=True,
    ),
    Port(
        "capsules", Capsules,
        (
            Formulation("matmul", CapsulesMatmul, lambda w: {
                **lin(w, "primary", "fc"), "matrix": w["votes"].transpose(0, 2, 1, 3).reshape(4, 3, 15),
            }),
            Formulation("layers", CapsulesLayers, lambda w: {
                **lin(w, "primary", "stem"),
                **{f"capsules.{i}.weight": w["votes"][i].transpose(1, 0, 2).reshape(3, 15) for i in range(4)},
            }),
        ),
        {"x": floats(5, 6)}, floats(5, 3, 5), SQUARE, swap=True,
    ),
    Port(
        "label_transitions", Transitions,
        (
            Formulation("to", TransitionsTo, lambda w: {
                **lin(w, "emit", "fc"), "trans": w["transitions"].T, "begin": w["start"], "stop": w["end"],
            }),
            Formulation("augmented", TransitionsAugmented, lambda w: {
                **lin(w, "emit", "proj"),
                "table": np.block([
                    [w["transitions"], w["end"][:, None]], [w["start"][None], np.full((1, 1), 0.3, np.float32)],
                ]),
            }),
        ),
        {"x": floats(6, 5, 5)}, floats(6), BOTH, swap=True,
    ),
    Port(
        "modulated_conv", Modulated,
        (
            Formulation("inputs", ModulatedInputs, lambda w: {
                **lin(w, "affine", "style"), "conv.weight": w["weight"], **same(w, "to_rgb", "rgb"),
            }),
            Formulation("unfold", ModulatedUnfold, modulated_unfold),
        ),
        {"x": floats(3, 4, 5, 5), "style": floats(3, 5)}, floats(3, 3, 5, 5), SQUARE, swap=True,
    ),
    Port(
        "coupling_flow", Coupling,
        (
            Formulation("joined", CouplingJoined, coupling_joined),
            Formulation("halves", CouplingHalves, coupling_halves),
        ),
        {"x": floats(7, 6)}, floats(7, 6), BOTH, swap=True, kept=frozenset({"masks"}),
    ),
    Port(
        "parallel_block", Parallel,
        (
            Formulation("fused", ParallelFused, parallel_fused),
            Formulation("apart", ParallelApart, parallel_apart),
        ),
        _X, _Y, SQUARE, swap=True,
    ),
    Port(
        "edge_attention", EdgeAttention,
        (
            Formulation("sums", EdgeAttentionSums, lambda w: {
                **lins(w, {"project": "lin", "out": "head"}),
                "target": w["attend.weight"][0, :6], "source": w["attend.weight"][0, 6:],
            }),
            Formulation("stored", EdgeAttentionStored, lambda w: {
                "w": w["project.weight"].T, "a": w["attend.weight"].reshape(2, 6), **lin(w, "out", "fc"),
            }),
        ),
        {"nodes": floats(6, 5), "edges": ints(2, 6, 6)}, floats(6, 3), SQUARE, swap=True,
    ),
    Port(
        "time_mixing", TimeMixing,
        (
            Formulation("matrix", TimeMixingMatrix, time_mixing_matrix),
            Formulation("steps", TimeMixingSteps, time_mixing_steps),
        ),
        _X, _Y, SQUARE, swap=True,
    ),
    Port(
        "channel_shuffle", Shuffled,
        (
            Formulation("apart", ShuffledApart, shuffled_apart),
            Formulation("later", ShuffledLater, shuffled_later),
        ),
        {"image": floats(3, 6, 4, 4)}, floats(3, 6, 4, 4), SQUARE, swap=True,
    ),
)  # fmt: skip
