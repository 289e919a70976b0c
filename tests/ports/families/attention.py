"""Attention: the framework's module, packed and separate weights in every order of heads, windows, rotary, grouped."""

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

D, H = 8, 2
K = D // H


def t_attend(q: Any, k: Any, v: Any) -> Any:
    """(batch, heads, length, size) each."""
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def p_attend(q: Any, k: Any, v: Any) -> Any:
    return PF.softmax(paddle.matmul(q, k, transpose_y=True) / math.sqrt(q.shape[-1]), axis=-1) @ v


def t_heads(x: Any) -> Any:
    return x.view(*x.shape[:2], -1, K).transpose(1, 2)


def p_heads(x: Any) -> Any:
    return x.reshape([*x.shape[:2], -1, K]).transpose([0, 2, 1, 3])


def t_join(x: Any) -> Any:
    return x.transpose(1, 2).flatten(2)


def p_join(x: Any) -> Any:
    return x.transpose([0, 2, 1, 3]).flatten(2)


# References.


class FrameworkAttention(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = tn.MultiheadAttention(D, H, batch_first=True)
        self.norm = tn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        return self.norm(x + self.attn(x, x, x, need_weights=False)[0])


class SeparateAttention(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (tn.Linear(D, D) for _ in range(4))
        self.norm = tn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        q, k, v = (t_heads(layer(x)) for layer in (self.query, self.key, self.value))
        return self.norm(x + self.out(t_join(t_attend(q, k, v))))


class PackedAttention(tn.Module):
    """timm's: q|k|v in one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = tn.Linear(D, 3 * D), tn.Linear(D, D)
        self.norm = tn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, H, K).permute(2, 0, 3, 1, 4)
        return self.norm(x + self.proj(t_join(t_attend(q, k, v))))


class InterleavedAttention(tn.Module):
    """BLOOM's: q, k and v of one head side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value, self.dense = tn.Linear(D, 3 * D), tn.Linear(D, D)
        self.norm = tn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        q, k, v = self.query_key_value(x).view(b, n, H, 3, K).permute(3, 0, 2, 1, 4)
        return self.norm(x + self.dense(t_join(t_attend(q, k, v))))


class LastAttention(tn.Module):
    """einops "(k h d)" turned round: q, k, v innermost of all."""

    def __init__(self) -> None:
        super().__init__()
        self.to_qkv, self.to_out = tn.Linear(D, 3 * D, bias=False), tn.Linear(D, D)
        self.norm = tn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        q, k, v = self.to_qkv(x).view(b, n, H, K, 3).permute(4, 0, 2, 1, 3)
        return self.norm(x + self.to_out(t_join(t_attend(q, k, v))))


# Formulations of all of these; each is told how its layers are called.


class PaddleSeparate(pn.Layer):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.q, self.k, self.v = (pn.Linear(D, D, bias_attr=None if bias else False) for _ in range(3))
        self.o = pn.Linear(D, D)
        self.norm = pn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        mixed = p_attend(p_heads(self.q(x)), p_heads(self.k(x)), p_heads(self.v(x)))
        return self.norm(x + self.o(p_join(mixed)))


class PaddlePacked(pn.Layer):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.qkv, self.proj = pn.Linear(D, 3 * D, bias_attr=None if bias else False), pn.Linear(D, D)
        self.norm = pn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, axis=-1)
        return self.norm(x + self.proj(p_join(p_attend(p_heads(q), p_heads(k), p_heads(v)))))


class PaddleInterleaved(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fused, self.out = pn.Linear(D, 3 * D), pn.Linear(D, D)
        self.norm = pn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        y = self.fused(x).reshape([b, n, H, 3 * K]).transpose([0, 2, 1, 3])
        q, k, v = y.split(3, axis=-1)
        return self.norm(x + self.out(p_join(p_attend(q, k, v))))


class PaddleReversed(pn.Layer):
    """v|k|q, as nobody expects it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = pn.LayerNorm(D)
        self.linear2, self.linear1 = pn.Linear(D, D), pn.Linear(D, 3 * D)

    def forward(self, x: Any) -> Any:
        v, k, q = self.linear1(x).chunk(3, axis=-1)
        return self.norm(x + self.linear2(p_join(p_attend(p_heads(q), p_heads(k), p_heads(v)))))


class PaddleHeadTensors(pn.Layer):
    """Weights of shape (model, heads, size), einsum, the output's of (heads, size, model)."""

    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv = (self.create_parameter([D, H, K]) for _ in range(3))
        self.bq, self.bk, self.bv = (self.create_parameter([H, K], is_bias=True) for _ in range(3))
        self.wo, self.bo = self.create_parameter([H, K, D]), self.create_parameter([D], is_bias=True)
        self.norm = pn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        q = paddle.einsum("bnd,dhk->bnhk", x, self.wq) + self.bq
        k = paddle.einsum("bnd,dhk->bnhk", x, self.wk) + self.bk
        v = paddle.einsum("bnd,dhk->bnhk", x, self.wv) + self.bv
        weights = PF.softmax(paddle.einsum("bnhk,bmhk->bhnm", q, k) / math.sqrt(K), axis=-1)
        mixed = paddle.einsum("bhnm,bmhk->bnhk", weights, v)
        return self.norm(x + paddle.einsum("bnhk,hkd->bnd", mixed, self.wo) + self.bo)


class PaddleHeadList(pn.Layer):
    """A list of heads, each with small layers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = pn.LayerList(
            [pn.LayerDict({"v": pn.Linear(D, K), "k": pn.Linear(D, K), "q": pn.Linear(D, K)}) for _ in range(H)]
        )
        self.out = pn.Linear(D, D)
        self.norm = pn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        mixed = [p_attend(head["q"](x), head["k"](x), head["v"](x)) for head in self.heads]
        return self.norm(x + self.out(paddle.concat(mixed, axis=-1)))


class PaddleFramework(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.attention = pn.MultiHeadAttention(D, H)
        self.norm = pn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        return self.norm(x + self.attention(x, x, x))


class PaddleScaledDot(pn.Layer):
    """The framework's function on (batch, length, heads, size)."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.key, self.query, self.out = (pn.Linear(D, D) for _ in range(4))
        self.norm = pn.LayerNorm(D)

    def forward(self, x: Any) -> Any:
        q, k, v = (layer(x).reshape([*x.shape[:2], H, K]) for layer in (self.query, self.key, self.value))
        return self.norm(x + self.out(PF.scaled_dot_product_attention(q, k, v).flatten(2)))


def apart(kind: str) -> Any:
    """The reference's state → q, k, v, o (weight as torch has it, bias), and the norm."""

    def of(w: State) -> State:
        if kind == "separate":
            return sames(w, {"query": "q", "key": "k", "value": "v", "out": "o", "norm": "norm"})
        packed, out = {
            "framework": ("attn.in_proj_", "attn.out_proj"),
            "packed": ("qkv.", "proj"),
            "interleaved": ("query_key_value.", "dense"),
            "last": ("to_qkv.", "to_out"),
        }[kind]
        made = {**same(w, out, "o"), **same(w, "norm")}
        for leaf in ("weight", "bias"):
            if packed + leaf not in w:
                continue
            whole = w[packed + leaf]
            if kind == "interleaved":
                whole = whole.reshape(H, 3, K, -1).swapaxes(0, 1)
            elif kind == "last":
                whole = whole.reshape(H, K, 3, -1).transpose(2, 0, 1, 3)
            thirds = whole.reshape(3, D, -1) if leaf == "weight" else whole.reshape(3, D)
            for letter, third in zip("qkv", thirds, strict=True):
                made[f"{letter}.{leaf}"] = third
        return made

    return of


def to_separate(kind: str, q: str = "q", k: str = "k", v: str = "v", o: str = "o") -> Any:
    return lambda w: {**lins(apart(kind)(w), {"q": q, "k": k, "v": v, "o": o}), **same(w, "norm")}


def to_packed(kind: str, order: str = "qkv", packed: str = "qkv", out: str = "proj") -> Any:
    def convert(w: State) -> State:
        parts = apart(kind)(w)
        made = {**lin(parts, "o", out), **same(w, "norm")}
        made[f"{packed}.weight"] = np.concatenate([parts[f"{letter}.weight"] for letter in order]).T
        if "q.bias" in parts:
            made[f"{packed}.bias"] = np.concatenate([parts[f"{letter}.bias"] for letter in order])
        return made

    return convert


def to_interleaved(kind: str) -> Any:
    def convert(w: State) -> State:
        parts = apart(kind)(w)
        weight = np.stack([parts[f"{letter}.weight"].reshape(H, K, D) for letter in "qkv"], 1)
        bias = np.stack([parts[f"{letter}.bias"].reshape(H, K) for letter in "qkv"], 1)
        return {
            "fused.weight": weight.reshape(3 * D, D).T,
            "fused.bias": bias.reshape(-1),
            **lin(parts, "o", "out"),
            **same(w, "norm"),
        }

    return convert


def to_head_tensors(kind: str) -> Any:
    def convert(w: State) -> State:
        parts = apart(kind)(w)
        made = {"wo": parts["o.weight"].T.reshape(H, K, D), "bo": parts["o.bias"], **same(w, "norm")}
        for letter in "qkv":
            made[f"w{letter}"] = parts[f"{letter}.weight"].T.reshape(D, H, K)
            made[f"b{letter}"] = parts[f"{letter}.bias"].reshape(H, K)
        return made

    return convert


def to_head_list(kind: str) -> Any:
    def convert(w: State) -> State:
        parts = apart(kind)(w)
        made = {**lin(parts, "o", "out"), **same(w, "norm")}
        for head in range(H):
            rows = slice(head * K, (head + 1) * K)
            for letter in "qkv":
                made[f"heads.{head}.{letter}.weight"] = parts[f"{letter}.weight"][rows].T
                made[f"heads.{head}.{letter}.bias"] = parts[f"{letter}.bias"][rows]
        return made

    return convert


def to_framework(kind: str) -> Any:
    names = {letter: f"attention.{long}_proj" for letter, long in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out"))}
    return lambda w: {**lins(apart(kind)(w), names), **same(w, "norm")}


# Grouped queries: four heads of queries, two of keys and values.


class GroupedQueries(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = tn.Linear(D, 16), tn.Linear(D, 8), tn.Linear(D, 8)
        self.o_proj = tn.Linear(16, D, bias=False)

    def forward(self, x: Any) -> Any:
        q, k, v = (t_heads(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        return x + self.o_proj(t_join(t_attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))))


class GroupedExpand(pn.Layer):
    """Keys and values expanded by a new axis instead of repeated; packed k|v."""

    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wkv, self.wo = pn.Linear(D, 16), pn.Linear(D, 16), pn.Linear(16, D, bias_attr=False)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        q = self.wq(x).reshape([b, n, 2, 2, K]).transpose([0, 2, 3, 1, 4])
        k, v = (p_heads(part).unsqueeze(2) for part in self.wkv(x).chunk(2, axis=-1))
        mixed = p_attend(q, k.expand([b, 2, 2, n, K]), v.expand([b, 2, 2, n, K]))
        return x + self.wo(mixed.transpose([0, 3, 1, 2, 4]).reshape([b, n, 16]))


class GroupedFalcon(pn.Layer):
    """One layer: for each group two heads of q, one of k, one of v."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value, self.dense = pn.Linear(D, 32), pn.Linear(16, D, bias_attr=False)

    def forward(self, x: Any) -> Any:
        b, n, _ = x.shape
        y = self.query_key_value(x).reshape([b, n, 2, 4, K])
        q = y[:, :, :, :2].flatten(2, 3).transpose([0, 2, 1, 3])
        k, v = (part.repeat_interleave(2, axis=2).transpose([0, 2, 1, 3]) for part in (y[:, :, :, 2], y[:, :, :, 3]))
        return x + self.dense(p_join(p_attend(q, k, v)))


def grouped_expand(w: State) -> State:
    return {
        **lins(w, {"q_proj": "wq", "o_proj": "wo"}),
        "wkv.weight": np.concatenate([w["k_proj.weight"], w["v_proj.weight"]]).T,
        "wkv.bias": np.concatenate([w["k_proj.bias"], w["v_proj.bias"]]),
    }


def grouped_falcon(w: State) -> State:
    made = lins(w, {"o_proj": "dense"})
    for leaf in ("weight", "bias"):
        q, k, v = (w[f"{letter}_proj.{leaf}"] for letter in "qkv")
        parts = [q.reshape(2, 2, K, -1), k.reshape(2, 1, K, -1), v.reshape(2, 1, K, -1)]
        whole = np.concatenate(parts, 1).reshape(32, -1)
        made[f"query_key_value.{leaf}"] = whole.T if leaf == "weight" else whole[:, 0]
    return made


# Cross attention.


class CrossAttention(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = tn.MultiheadAttention(D, H, kdim=6, vdim=6, batch_first=True)
        self.ln_q, self.ln_m = tn.LayerNorm(D), tn.LayerNorm(6)

    def forward(self, x: Any, memory: Any) -> Any:
        m = self.ln_m(memory)
        return x + self.attn(self.ln_q(x), m, m, need_weights=False)[0]


class CrossHand(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.ln_m, self.ln_q = pn.LayerNorm(6), pn.LayerNorm(D)
        self.to_v, self.to_k, self.to_q, self.to_o = pn.Linear(6, D), pn.Linear(6, D), pn.Linear(D, D), pn.Linear(D, D)

    def forward(self, x: Any, memory: Any) -> Any:
        m = self.ln_m(memory)
        mixed = p_attend(p_heads(self.to_q(self.ln_q(x))), p_heads(self.to_k(m)), p_heads(self.to_v(m)))
        return x + self.to_o(p_join(mixed))


class CrossPacked(pn.Layer):
    """Keys and values of the memory in one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = pn.LayerNorm(D), pn.LayerNorm(6)
        self.q, self.kv, self.proj = pn.Linear(D, D), pn.Linear(6, 2 * D), pn.Linear(D, D)

    def forward(self, x: Any, memory: Any) -> Any:
        b, n, _ = memory.shape
        kv = self.kv(self.norm2(memory)).reshape([b, n, 2, H, K]).transpose([2, 0, 3, 1, 4])
        return x + self.proj(p_join(p_attend(p_heads(self.q(self.norm1(x))), kv[0], kv[1])))


class CrossFramework(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.cross = pn.MultiHeadAttention(D, H, kdim=6, vdim=6)
        self.before, self.memory_norm = pn.LayerNorm(D), pn.LayerNorm(6)

    def forward(self, x: Any, memory: Any) -> Any:
        m = self.memory_norm(memory)
        return x + self.cross(self.before(x), m, m)


def cross_parts(w: State) -> State:
    made = {f"{letter}.weight": w[f"attn.{letter}_proj_weight"] for letter in "qkv"}
    made |= {f"{letter}.bias": part for letter, part in zip("qkv", w["attn.in_proj_bias"].reshape(3, D), strict=True)}
    return {**made, **same(w, "attn.out_proj", "o")}


def cross_packed(w: State) -> State:
    parts = cross_parts(w)
    return {
        **sames(w, {"ln_q": "norm1", "ln_m": "norm2"}),
        **lins(parts, {"q": "q", "o": "proj"}),
        "kv.weight": np.concatenate([parts["k.weight"], parts["v.weight"]]).T,
        "kv.bias": np.concatenate([parts["k.bias"], parts["v.bias"]]),
    }


# Swin windows with a relative bias.


def relative_index(size: int) -> np.ndarray:
    places = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij")).reshape(2, -1)
    apart_by = places[:, :, None] - places[:, None, :] + size - 1
    return apart_by[0] * (2 * size - 1) + apart_by[1]


class SwinWindows(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = tn.LayerNorm(D)
        self.qkv, self.proj = tn.Linear(D, 3 * D), tn.Linear(D, D)
        self.table = tn.Parameter(0.3 * torch.randn(9, H))
        self.register_buffer("index", torch.from_numpy(relative_index(2)))

    def forward(self, x: Any) -> Any:
        b, s, _, d = x.shape
        y = torch.roll(self.norm(x), (-1, -1), (1, 2))
        y = y.view(b, s // 2, 2, s // 2, 2, d).transpose(2, 3).reshape(-1, 4, d)
        q, k, v = self.qkv(y).view(-1, 4, 3, H, K).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index.reshape(-1)].view(4, 4, H).permute(2, 0, 1)
        y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(K) + bias, -1) @ v
        y = self.proj(t_join(y)).view(b, s // 2, s // 2, 2, 2, d).transpose(2, 3).reshape(b, s, s, d)
        return x + torch.roll(y, (1, 1), (1, 2))


class SwinSeparate(pn.Layer):
    """q, k, v apart; the index is worked out at every call; six axes in one transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.table = self.create_parameter([9, H])
        self.k, self.q, self.v, self.out = (pn.Linear(D, D) for _ in range(4))
        self.norm = pn.LayerNorm(D)

    def index(self) -> Any:
        rows = paddle.arange(4) // 2
        columns = paddle.arange(4) % 2
        down = rows.unsqueeze(1) - rows.unsqueeze(0) + 1
        right = columns.unsqueeze(1) - columns.unsqueeze(0) + 1
        return down * 3 + right

    def forward(self, x: Any) -> Any:
        b, s, _, d = x.shape
        y = paddle.roll(self.norm(x), [-1, -1], axis=[1, 2])
        y = y.reshape([b, s // 2, 2, s // 2, 2, d]).transpose([0, 1, 3, 2, 4, 5]).reshape([-1, 4, d])
        q, k, v = (p_heads(layer(y)) for layer in (self.q, self.k, self.v))
        bias = self.table[self.index().flatten()].reshape([4, 4, H]).transpose([2, 0, 1])
        y = PF.softmax(q @ k.transpose([0, 1, 3, 2]) / math.sqrt(K) + bias, axis=-1) @ v
        y = self.out(p_join(y)).reshape([b, s // 2, s // 2, 2, 2, d]).transpose([0, 1, 3, 2, 4, 5])
        return x + paddle.roll(y.reshape([b, s, s, d]), [1, 1], axis=[1, 2])


class SwinStored(pn.Layer):
    """The bias is stored as an embedding, windows are sliced one by one, and the shift is a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = pn.Embedding(9, H)
        self.register_buffer("where", paddle.to_tensor(relative_index(2)), persistable=False)
        self.linear = pn.Linear(D, 3 * D)
        self.proj = pn.Linear(D, D)
        self.pre = pn.LayerNorm(D)

    def shift(self, x: Any, by: int) -> Any:
        x = paddle.concat([x[:, by:], x[:, :by]], axis=1)
        return paddle.concat([x[:, :, by:], x[:, :, :by]], axis=2)

    def window(self, y: Any) -> Any:
        q, k, v = (p_heads(part) for part in self.linear(y).chunk(3, axis=-1))
        scores = q @ k.transpose([0, 1, 3, 2]) * K**-0.5 + self.bias(self.where).transpose([2, 0, 1])
        return self.proj(p_join(PF.softmax(scores, axis=-1) @ v))

    def forward(self, x: Any) -> Any:
        b, s, _, d = x.shape
        y, rows = self.shift(self.pre(x), 1), []
        for i in range(0, s, 2):
            row = [self.window(y[:, i : i + 2, j : j + 2].flatten(1, 2)).reshape([b, 2, 2, d]) for j in range(0, s, 2)]
            rows.append(paddle.concat(row, axis=2))
        return x + self.shift(paddle.concat(rows, axis=1), -1)


def swin_separate(w: State) -> State:
    parts = apart("packed")(w)
    return {**lins(parts, {"q": "q", "k": "k", "v": "v", "o": "out"}), **same(w, "norm"), "table": w["table"]}


def swin_stored(w: State) -> State:
    return {**lins(w, {"qkv": "linear", "proj": "proj"}), **same(w, "norm", "pre"), "bias.weight": w["table"]}


# Rotary positions.


class Rotary(tn.Module):
    """Halves are rotated against each other; cosines and sines are stored tables."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (tn.Linear(D, D, bias=False) for _ in range(4))
        angles = torch.arange(6.0)[:, None] * 100.0 ** (-torch.arange(0, K, 2.0) / K)
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

    def turn(self, x: Any) -> Any:
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat([-right, left], -1) * self.sin

    def forward(self, x: Any) -> Any:
        q, k, v = (t_heads(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        mask = torch.full((6, 6), float("-inf"), dtype=x.dtype).triu(1)
        scores = self.turn(q) @ self.turn(k).transpose(-1, -2) / math.sqrt(K) + mask
        return self.o_proj(t_join(torch.softmax(scores, -1) @ v))


class RotaryComputed(pn.Layer):
    """Angles worked out at every call; the two halves rotated apart."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (pn.Linear(D, D, bias_attr=False) for _ in range(4))

    def turn(self, x: Any) -> Any:
        places = paddle.arange(x.shape[2]).astype(x.dtype)
        angles = places.unsqueeze(1) * paddle.to_tensor([100.0 ** (-i / K) for i in range(0, K, 2)], dtype=x.dtype)
        left, right = x[..., : K // 2], x[..., K // 2 :]
        cos, sin = paddle.cos(angles), paddle.sin(angles)
        return paddle.concat([left * cos - right * sin, right * cos + left * sin], axis=-1)

    def forward(self, x: Any) -> Any:
        q, k, v = (p_heads(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        scores = self.turn(q) @ self.turn(k).transpose([0, 1, 3, 2]) / math.sqrt(K)
        mask = paddle.tril(paddle.ones([x.shape[1], x.shape[1]], dtype="bool"))
        scores = paddle.where(mask, scores, paddle.full_like(scores, -1e9))
        return self.o_proj(p_join(PF.softmax(scores, axis=-1) @ v))


class RotaryPairs(pn.Layer):
    """Neighbours are rotated, so the rows of q and k are stored in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.w_o, self.w_v, self.w_k, self.w_q = (self.create_parameter([D, D]) for _ in range(4))
        speed = 100.0 ** (-np.arange(0, K, 2) / K)
        angles = np.arange(6.0)[:, None] * speed
        self.register_buffer("cosines", paddle.to_tensor(np.cos(angles), dtype=paddle.get_default_dtype()))
        self.register_buffer("sines", paddle.to_tensor(np.sin(angles), dtype=paddle.get_default_dtype()))

    def turn(self, x: Any) -> Any:
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = [even * self.cosines - odd * self.sines, odd * self.cosines + even * self.sines]
        return paddle.stack(turned, axis=-1).flatten(-2)

    def forward(self, x: Any) -> Any:
        q, k, v = (p_heads(x @ w) for w in (self.w_q, self.w_k, self.w_v))
        scores = self.turn(q) @ self.turn(k).transpose([0, 1, 3, 2]) / math.sqrt(K)
        scores = scores + paddle.triu(paddle.full([6, 6], -1e9, dtype=x.dtype), 1)
        return p_join(PF.softmax(scores, axis=-1) @ v) @ self.w_o


def rotary_pairs(w: State) -> State:
    order = np.concatenate([head * K + np.array([0, 2, 1, 3]) for head in range(H)])
    return {
        "w_q": w["q_proj.weight"][order].T,
        "w_k": w["k_proj.weight"][order].T,
        "w_v": w["v_proj.weight"].T,
        "w_o": w["o_proj.weight"].T,
        "cosines": w["cos"][:, : K // 2],
        "sines": w["sin"][:, : K // 2],
    }


# Linear attention, additive attention, a learned query.


class LinearAttention(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (tn.Linear(6, 6, bias=False) for _ in range(3))
        self.out = tn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        q, k, v = TF.elu(self.q(x)) + 1, TF.elu(self.k(x)) + 1, self.v(x)
        mixed = q @ (k.transpose(1, 2) @ v)
        return self.out(mixed / (q @ k.sum(1)[:, :, None]))


class LinearEinsum(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.out = pn.Linear(6, 6)
        self.theta, self.phi, self.g = (pn.Linear(6, 6, bias_attr=False) for _ in range(3))

    def forward(self, x: Any) -> Any:
        q, k = PF.elu(self.theta(x)) + 1, PF.elu(self.phi(x)) + 1
        context = paddle.einsum("bnd,bne->bde", k, self.g(x))
        below = 1 / paddle.einsum("bnd,bd->bn", q, k.sum(1))
        return self.out(paddle.einsum("bnd,bde,bn->bne", q, context, below))


class LinearQuadratic(pn.Layer):
    """The products in the other order: all pairs of positions first."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = pn.Linear(6, 18, bias_attr=False), pn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).chunk(3, axis=-1)
        pairs = (PF.elu(q) + 1) @ (PF.elu(k) + 1).transpose([0, 2, 1])
        return self.out(pairs / pairs.sum(-1, keepdim=True) @ v)


class Additive(tn.Module):
    """Bahdanau's: one query against a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = tn.Linear(6, 5), tn.Linear(6, 5, bias=False)
        self.score = tn.Linear(5, 1, bias=False)

    def forward(self, state: Any, memory: Any) -> Any:
        energy = self.score(torch.tanh(self.query(state)[:, None] + self.key(memory)))
        return (torch.softmax(energy, 1) * memory).sum(1)


class AdditiveJoined(pn.Layer):
    """One layer on the query and the key side by side; the score is a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.v = self.create_parameter([5])
        self.attn = pn.Linear(12, 5)

    def forward(self, state: Any, memory: Any) -> Any:
        many = state.unsqueeze(1).expand([-1, memory.shape[1], -1])
        energy = PF.tanh(self.attn(paddle.concat([many, memory], axis=-1))) @ self.v
        return paddle.bmm(PF.softmax(energy, axis=1).unsqueeze(1), memory).squeeze(1)


class AdditiveNamed(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.U, self.W = pn.Linear(6, 5, bias_attr=False), pn.Linear(6, 5)
        self.v = pn.Linear(5, 1, bias_attr=False)

    def forward(self, state: Any, memory: Any) -> Any:
        energy = self.v(PF.tanh(self.W(state).unsqueeze(1) + self.U(memory))).squeeze(-1)
        return paddle.einsum("bn,bnd->bd", PF.softmax(energy, axis=-1), memory)


def additive_joined(w: State) -> State:
    return {
        "attn.weight": np.concatenate([w["query.weight"], w["key.weight"]], 1).T,
        "attn.bias": w["query.bias"],
        "v": w["score.weight"][0],
    }


class PoolingQuery(tn.Module):
    """A learned query pools a set (Perceiver, set transformer)."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = tn.Parameter(torch.randn(3, D))
        self.key, self.value = tn.Linear(D, D), tn.Linear(D, D)
        self.ff = tn.Sequential(tn.Linear(D, 12), tn.ReLU(), tn.Linear(12, D))

    def forward(self, items: Any) -> Any:
        q = t_heads(self.seeds[None].expand(len(items), -1, -1))
        x = t_join(t_attend(q, t_heads(self.key(items)), t_heads(self.value(items))))
        return x + self.ff(x)


class PoolingEmbedding(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.latents = pn.Embedding(3, D)
        self.kv = pn.Linear(D, 2 * D)
        self.ff1, self.ff2 = pn.Linear(D, 12), pn.Linear(12, D)

    def forward(self, items: Any) -> Any:
        q = p_heads(self.latents.weight.unsqueeze(0)).expand([items.shape[0], H, 3, K])
        k, v = (p_heads(part) for part in self.kv(items).chunk(2, axis=-1))
        x = p_join(p_attend(q, k, v))
        return x + self.ff2(PF.relu(self.ff1(x)))


class PoolingScores(pn.Layer):
    """The query as a matrix of shape (heads, size, seeds)."""

    def __init__(self) -> None:
        super().__init__()
        self.query = self.create_parameter([H, K, 3])
        self.value, self.key = pn.Linear(D, D), pn.Linear(D, D)
        self.ff = pn.Sequential(pn.Linear(D, 12), pn.ReLU(), pn.Linear(12, D))

    def forward(self, items: Any) -> Any:
        k, v = p_heads(self.key(items)), p_heads(self.value(items))
        # paddle cannot differentiate a product whose right side has fewer axes.
        weights = PF.softmax(k @ self.query.expand([items.shape[0], H, K, 3]) / math.sqrt(K), axis=2)
        x = p_join(weights.transpose([0, 1, 3, 2]) @ v)
        return x + self.ff(x)


def pooling_embedding(w: State) -> State:
    return {
        "latents.weight": w["seeds"],
        "kv.weight": np.concatenate([w["key.weight"], w["value.weight"]]).T,
        "kv.bias": np.concatenate([w["key.bias"], w["value.bias"]]),
        **lins(w, {"ff.0": "ff1", "ff.2": "ff2"}),
    }


def pooling_scores(w: State) -> State:
    return {"query": w["seeds"].reshape(3, H, K).transpose(1, 2, 0), **lins(w, "key value ff.0 ff.2")}


# A whole encoder layer.


class EncoderLayer(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = tn.Embedding(15, D)
        self.layer = tn.TransformerEncoderLayer(D, H, 12, dropout=0.0, batch_first=True)
        self.head = tn.Linear(D, 4)

    def forward(self, ids: Any) -> Any:
        return self.head(self.layer(self.words(ids))[:, 0])


class EncoderFramework(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words = pn.Embedding(15, D)
        self.layer = pn.TransformerEncoderLayer(D, H, 12, dropout=0.0)
        self.head = pn.Linear(D, 4)

    def forward(self, ids: Any) -> Any:
        return self.head(self.layer(self.words(ids))[:, 0])


class EncoderHand(pn.Layer):
    """Everything by hand, in one class; the norms' digits are exchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = pn.Embedding(15, D)
        self.norm1, self.norm2 = pn.LayerNorm(D), pn.LayerNorm(D)
        self.fc_out, self.fc_in = pn.Linear(12, D), pn.Linear(D, 12)
        self.in_proj, self.out_proj = pn.Linear(D, 3 * D), pn.Linear(D, D)
        self.cls = pn.Linear(D, 4)

    def forward(self, ids: Any) -> Any:
        x = self.emb(ids)
        q, k, v = (p_heads(part) for part in self.in_proj(x).chunk(3, axis=-1))
        x = self.norm2(x + self.out_proj(p_join(p_attend(q, k, v))))
        x = self.norm1(x + self.fc_out(PF.relu(self.fc_in(x))))
        return self.cls(x[:, 0])


def encoder_framework(w: State) -> State:
    made = {**same(w, "words"), **sames(w, "layer.norm1 layer.norm2"), **lins(w, "layer.linear1 layer.linear2 head")}
    thirds = w["layer.self_attn.in_proj_weight"].reshape(3, D, D), w["layer.self_attn.in_proj_bias"].reshape(3, D)
    for i, letter in enumerate("qkv"):
        made[f"layer.self_attn.{letter}_proj.weight"] = thirds[0][i].T
        made[f"layer.self_attn.{letter}_proj.bias"] = thirds[1][i]
    return {**made, **lin(w, "layer.self_attn.out_proj", "layer.self_attn.out_proj")}


def encoder_hand(w: State) -> State:
    return {
        **sames(w, {"words": "emb", "layer.norm1": "norm2", "layer.norm2": "norm1"}),
        **lins(w, {
            "layer.linear1": "fc_in", "layer.linear2": "fc_out", "layer.self_attn.out_proj": "out_proj", "head": "cls",
        }),
        "in_proj.weight": w["layer.self_attn.in_proj_weight"].T,
        "in_proj.bias": w["layer.self_attn.in_proj_bias"],
    }  # fmt: skip


# ALiBi in two layers.


class AlibiBlock(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln = tn.LayerNorm(D)
        self.qkv, self.out = tn.Linear(D, 3 * D, bias=False), tn.Linear(D, D, bias=False)

    def forward(self, x: Any) -> Any:
        q, k, v = (t_heads(part) for part in self.qkv(self.ln(x)).chunk(3, -1))
        places = torch.arange(x.shape[1])
        slopes = torch.tensor([2.0**-4, 2.0**-8], dtype=x.dtype)
        bias = (places[None] - places[:, None]).to(x.dtype) * slopes[:, None, None]
        scores = (q @ k.transpose(-1, -2) / math.sqrt(K) + bias).masked_fill(places[None] > places[:, None], -1e9)
        return x + self.out(t_join(torch.softmax(scores, -1) @ v))


class Alibi(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = tn.ModuleList([AlibiBlock(), AlibiBlock()])
        self.head = tn.Linear(D, 5)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class AlibiLayer(pn.Layer):
    """Only the key's place counts in the bias: a constant along each row changes no softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = pn.LayerNorm(D)
        self.wq, self.wk, self.wv, self.wo = (pn.Linear(D, D, bias_attr=False) for _ in range(4))

    def forward(self, x: Any) -> Any:
        y, n = self.norm(x), x.shape[1]
        q, k, v = (p_heads(layer(y)) for layer in (self.wq, self.wk, self.wv))
        bias = paddle.arange(n).astype(x.dtype) * paddle.to_tensor([2.0**-4, 2.0**-8], dtype=x.dtype).reshape([2, 1, 1])
        mask = paddle.triu(paddle.full([n, n], -1e9, dtype=x.dtype), 1)
        scores = q @ k.transpose([0, 1, 3, 2]) / math.sqrt(K) + bias + mask
        return x + self.wo(p_join(PF.softmax(scores, axis=-1) @ v))


class AlibiSeparate(pn.Layer):
    def __init__(self, kind: Any = AlibiLayer) -> None:
        super().__init__()
        self.layers = pn.LayerList([kind(), kind()])
        self.lm = pn.Linear(D, 5)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.lm(x)


def alibi_separate(w: State, q: str = "wq", k: str = "wk", v: str = "wv", o: str = "wo", norm: str = "norm") -> State:
    made = lin(w, "head", "lm")
    for i in range(2):
        for name, third in zip((q, k, v), w[f"blocks.{i}.qkv.weight"].reshape(3, D, D), strict=True):
            made[f"layers.{i}.{name}.weight"] = third.T
        made |= lin(w, f"blocks.{i}.out", f"layers.{i}.{o}") | same(w, f"blocks.{i}.ln", f"layers.{i}.{norm}")
    return made


_X = {"x": floats(2, 5, D)}
_Y = floats(2, 5, D)


PORTS = (
    Port(
        "attention_framework", FrameworkAttention,
        (
            Formulation("framework", PaddleFramework, to_framework("framework")),
            Formulation("separate", PaddleSeparate, to_separate("framework")),
            Formulation("packed", PaddlePacked, to_packed("framework")),
        ),
        _X, _Y, SQUARE, swap=True,
    ),
    Port(
        "attention_separate", SeparateAttention,
        (
            Formulation("head_tensors", PaddleHeadTensors, to_head_tensors("separate")),
            Formulation("packed", PaddlePacked, to_packed("separate")),
            Formulation("scaled_dot", PaddleScaledDot, to_separate("separate", "query", "key", "value", "out")),
            Formulation(
                "misleading",
                renamed(PaddleSeparate, q="layer3", k="layer1", v="layer2", o="layer0"),
                to_separate("separate", "layer3", "layer1", "layer2", "layer0"),
            ),
        ),
        _X, _Y, SQUARE, swap=True,
    ),
    Port(
        "attention_packed", PackedAttention,
        (
            Formulation("separate", PaddleSeparate, to_separate("packed")),
            Formulation("interleaved", PaddleInterleaved, to_interleaved("packed")),
            Formulation("reversed", PaddleReversed, to_packed("packed", "vkq", "linear1", "linear2")),
        ),
        _X, _Y, SQUARE, swap=True,
    ),
    Port(
        "attention_interleaved", InterleavedAttention,
        (
            Formulation("separate", lambda: reregistered(PaddleSeparate()), to_separate("interleaved")),
            Formulation("packed", PaddlePacked, to_packed("interleaved")),
            Formulation("head_list", PaddleHeadList, to_head_list("interleaved")),
        ),
        _X, _Y, SQUARE, swap=True,
    ),
    Port(
        "attention_last", LastAttention,
        (
            Formulation("separate", lambda: PaddleSeparate(bias=False), to_separate("last")),
            Formulation("packed", lambda: PaddlePacked(bias=False), to_packed("last")),
        ),
        _X, _Y, SQUARE,
    ),
    Port(
        "grouped_queries", GroupedQueries,
        (Formulation("expand", GroupedExpand, grouped_expand), Formulation("falcon", GroupedFalcon, grouped_falcon)),
        _X, _Y, SQUARE, swap=True,
    ),
    Port(
        "cross_attention", CrossAttention,
        (
            Formulation("hand", CrossHand, lambda w: {
                **sames(w, "ln_q ln_m"), **lins(cross_parts(w), {x: f"to_{x}" for x in "qkvo"}),
            }),
            Formulation("packed", CrossPacked, cross_packed),
            Formulation("framework", CrossFramework, lambda w: {
                **sames(w, {"ln_q": "before", "ln_m": "memory_norm"}),
                **lins(cross_parts(w), {"q": "cross.q_proj", "k": "cross.k_proj", "v": "cross.v_proj",
                                        "o": "cross.out_proj"}),
            }),
        ),
        {"x": floats(2, 5, D), "memory": floats(2, 7, 6)}, _Y, SQUARE,
    ),
    Port(
        "swin_windows", SwinWindows,
        (Formulation("separate", SwinSeparate, swin_separate), Formulation("stored", SwinStored, swin_stored)),
        {"x": floats(2, 4, 4, D)}, floats(2, 4, 4, D), SQUARE,
    ),
    Port(
        "rotary", Rotary,
        (
            Formulation("computed", RotaryComputed, lambda w: lins(w, "q_proj k_proj v_proj o_proj")),
            Formulation("pairs", RotaryPairs, rotary_pairs),
        ),
        {"x": floats(2, 6, D)}, floats(2, 6, D), SQUARE, kept=frozenset({"cos", "sin"}),
    ),
    Port(
        "linear_attention", LinearAttention,
        (
            Formulation("einsum", LinearEinsum, lambda w: lins(w, {"q": "theta", "k": "phi", "v": "g", "out": "out"})),
            Formulation("quadratic", LinearQuadratic, lambda w: {
                "qkv.weight": np.concatenate([w[f"{x}.weight"] for x in "qkv"]).T, **lin(w, "out", "out"),
            }),
        ),
        {"x": floats(2, 7, 6)}, floats(2, 7, 6), SQUARE,
    ),
    Port(
        "additive_attention", Additive,
        (
            Formulation("joined", AdditiveJoined, additive_joined),
            Formulation("named", AdditiveNamed, lambda w: lins(w, {"query": "W", "key": "U", "score": "v"})),
        ),
        {"state": floats(3, 6), "memory": floats(3, 5, 6)}, floats(3, 6), SQUARE, swap=True,
    ),
    Port(
        "pooling_query", PoolingQuery,
        (
            Formulation("embedding", PoolingEmbedding, pooling_embedding),
            Formulation("scores", PoolingScores, pooling_scores),
        ),
        {"items": floats(2, 6, D)}, floats(2, 3, D), SQUARE,
    ),
    Port(
        "encoder_layer", EncoderLayer,
        (
            Formulation("framework", EncoderFramework, encoder_framework),
            Formulation("hand", EncoderHand, encoder_hand, loss=paddle_entropy_by_hand),
        ),
        {"ids": ints(15, 3, 6)}, ints(4, 3), ENTROPY, swap=True,
    ),
    Port(
        "alibi", Alibi,
        (
            Formulation("separate", AlibiSeparate, alibi_separate),
            Formulation(
                "meaningless",
                lambda: AlibiSeparate(renamed(AlibiLayer, wq="a", wk="d", wv="c", wo="b", norm="e")),
                lambda w: alibi_separate(w, "a", "d", "c", "b", "e"),
            ),
        ),
        {"x": floats(2, 6, D)}, floats(2, 6, 5), SQUARE,
    ),
)  # fmt: skip
