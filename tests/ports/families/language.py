"""Language models and their parts: gated units, experts, LoRA, tied weights, tables on one side, parts never used."""

from __future__ import annotations

import math
from dataclasses import dataclass
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

D, H, K = 8, 2, 4


def p_heads(x: Any) -> Any:
    return x.reshape([*x.shape[:2], -1, K]).transpose([0, 2, 1, 3])


def p_join(x: Any) -> Any:
    return x.transpose([0, 2, 1, 3]).flatten(2)


def t_heads(x: Any) -> Any:
    return x.view(*x.shape[:2], -1, K).transpose(1, 2)


# Gated units.


class SwiGLU(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = tn.Linear(6, 10, bias=False), tn.Linear(6, 10, bias=False)
        self.down_proj = tn.Linear(10, 6, bias=False)

    def forward(self, x: Any) -> Any:
        return x + self.down_proj(TF.silu(self.gate_proj(x)) * self.up_proj(x))


class SwiGLUSeparate(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = (pn.Linear(i, o, bias_attr=False) for i, o in ((6, 10), (10, 6), (6, 10)))

    def forward(self, x: Any) -> Any:
        return x + self.w2(PF.silu(self.w1(x)) * self.w3(x))


class SwiGLUPacked(pn.Layer):
    """One layer, up first."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = pn.Linear(6, 20, bias_attr=False), pn.Linear(10, 6, bias_attr=False)

    def forward(self, x: Any) -> Any:
        up, gate = self.fc1(x).chunk(2, axis=-1)
        return x + self.fc2(PF.sigmoid(gate) * gate * up)


class SwiGLUFunction(pn.Layer):
    """The framework's swiglu on bare parameters, registered crosswise."""

    def __init__(self) -> None:
        super().__init__()
        self.up_w, self.gate_w = self.create_parameter([6, 10]), self.create_parameter([6, 10])
        self.down_w = self.create_parameter([10, 6])

    def forward(self, x: Any) -> Any:
        return x + paddle.matmul(PF.swiglu(x @ self.gate_w, x @ self.up_w), self.down_w)


def swiglu_packed(w: State) -> State:
    packed = np.concatenate([w["up_proj.weight"], w["gate_proj.weight"]]).T
    return {"fc1.weight": packed, **lin(w, "down_proj", "fc2")}


def swiglu_function(w: State) -> State:
    return {f"{name}_w": w[f"{name}_proj.weight"].T for name in ("gate", "up", "down")}


# A mixture of experts.


class Experts(tn.Module):
    """Every token goes to its two best experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = tn.Linear(6, 4, bias=False)
        self.experts = tn.ModuleList([tn.Sequential(tn.Linear(6, 8), tn.ReLU(), tn.Linear(8, 6)) for _ in range(4)])

    def forward(self, x: Any) -> Any:
        chances, chosen = torch.softmax(self.router(x), -1).topk(2, -1)
        chances = chances / chances.sum(-1, keepdim=True)
        total = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            row, place = torch.where(chosen == i)
            total.index_add_(0, row, expert(x[row]) * chances[row, place, None])
        return x + total


class ExpertsStacked(pn.Layer):
    """All experts in stacked tensors, run on all tokens; a dense table of chances."""

    def __init__(self) -> None:
        super().__init__()
        self.w_in, self.b_in = self.create_parameter([4, 6, 8]), self.create_parameter([4, 1, 8], is_bias=True)
        self.w_out, self.b_out = self.create_parameter([4, 8, 6]), self.create_parameter([4, 1, 6], is_bias=True)
        self.gate = pn.Linear(6, 4, bias_attr=False)

    def forward(self, x: Any) -> Any:
        chances, chosen = paddle.topk(PF.softmax(self.gate(x), axis=-1), 2, axis=-1)
        chances = chances / chances.sum(-1, keepdim=True)
        dense = (PF.one_hot(chosen, 4).astype(x.dtype) * chances.unsqueeze(-1)).sum(1)
        every = paddle.bmm(PF.relu(paddle.bmm(x.unsqueeze(0).expand([4, *x.shape]), self.w_in) + self.b_in), self.w_out)
        return x + paddle.einsum("te,etd->td", dense, every + self.b_out)


class ExpertsList(pn.Layer):
    """Weights of the chosen by a softmax over their two scores alone; experts named, last first."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pn.LayerDict({
            name: pn.Sequential(pn.Linear(6, 8), pn.ReLU(), pn.Linear(8, 6)) for name in ("d", "c", "b", "a")
        })  # fmt: skip
        self.score = pn.Linear(6, 4, bias_attr=False)

    def forward(self, x: Any) -> Any:
        scores, chosen = paddle.topk(self.score(x), 2, axis=-1)
        weights = PF.softmax(scores, axis=-1)
        total = x
        for i, name in enumerate("abcd"):
            weight = (weights * (chosen == i).astype(x.dtype)).sum(-1, keepdim=True)
            total = total + weight * self.pool[name](x)
        return total


def experts_stacked(w: State) -> State:
    made = lin(w, "router", "gate")
    for new, i in (("in", 0), ("out", 2)):
        made[f"w_{new}"] = np.stack([w[f"experts.{e}.{i}.weight"].T for e in range(4)])
        made[f"b_{new}"] = np.stack([w[f"experts.{e}.{i}.bias"][None] for e in range(4)])
    return made


def experts_list(w: State) -> State:
    names = {f"experts.{e}.{i}": f"pool.{'abcd'[e]}.{i}" for e in range(4) for i in (0, 2)}
    return lins(w, {**names, "router": "score"})


# LoRA.


class LoRALinear(tn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.base = tn.Linear(n_in, n_out)
        self.lora_a, self.lora_b = tn.Linear(n_in, 2, bias=False), tn.Linear(2, n_out, bias=False)

    def forward(self, x: Any) -> Any:
        return self.base(x) + 0.5 * self.lora_b(self.lora_a(x))


class LoRA(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.head = LoRALinear(6, 8), LoRALinear(8, 8), tn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


class LoRAMerged(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.head = pn.Linear(6, 8), pn.Linear(8, 8), pn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(PF.tanh(self.fc2(PF.tanh(self.fc1(x)))))


class LoRAParameters(pn.Layer):
    """The two small matrices are parameters beside the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.head = pn.Linear(6, 8), pn.Linear(8, 8), pn.Linear(8, 3)
        self.A1, self.B1 = self.create_parameter([6, 2]), self.create_parameter([2, 8])
        self.A2, self.B2 = self.create_parameter([8, 2]), self.create_parameter([2, 8])

    def forward(self, x: Any) -> Any:
        x = PF.tanh(self.fc1(x) + (x @ self.A1 @ self.B1) / 2)
        return self.head(PF.tanh(self.fc2(x) + (x @ self.A2 @ self.B2) / 2))


def lora_merged(w: State) -> State:
    made = lin(w, "head", "head")
    for name in ("fc1", "fc2"):
        more = 0.5 * w[f"{name}.lora_b.weight"] @ w[f"{name}.lora_a.weight"]
        made[f"{name}.weight"], made[f"{name}.bias"] = (w[f"{name}.base.weight"] + more).T, w[f"{name}.base.bias"]
    return made


def lora_parameters(w: State) -> State:
    made = lins(w, {"fc1.base": "fc1", "fc2.base": "fc2", "head": "head"})
    for i in "12":
        made[f"A{i}"], made[f"B{i}"] = w[f"fc{i}.lora_a.weight"].T, w[f"fc{i}.lora_b.weight"].T
    return made


# Tied embeddings.


class Tied(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = tn.Embedding(12, 6), tn.Embedding(5, 6)
        self.mlp = tn.Sequential(tn.Linear(6, 12), tn.GELU(approximate="tanh"), tn.Linear(12, 6))
        self.ln_f = tn.LayerNorm(6)
        self.lm_head = tn.Linear(6, 12, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        return self.lm_head(self.ln_f(x + self.mlp(x))).flatten(0, 1)


class TiedMatmul(pn.Layer):
    """No head at all: a product with the table."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = pn.Embedding(12, 6), pn.Embedding(5, 6)
        self.mlp = pn.Sequential(pn.Linear(6, 12), pn.GELU(approximate=True), pn.Linear(12, 6))
        self.ln_f = pn.LayerNorm(6)

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe(paddle.arange(ids.shape[1]))
        return paddle.matmul(self.ln_f(x + self.mlp(x)), self.wte.weight, transpose_y=True).flatten(0, 1)


class TiedParameter(pn.Layer):
    """One bare parameter for both; positions as a parameter of three axes."""

    def __init__(self) -> None:
        super().__init__()
        self.position, self.shared = self.create_parameter([1, 5, 6]), self.create_parameter([12, 6])
        self.norm, self.c_proj, self.c_fc = pn.LayerNorm(6), pn.Linear(12, 6), pn.Linear(6, 12)

    def act(self, x: Any) -> Any:
        return 0.5 * x * (1 + paddle.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def forward(self, ids: Any) -> Any:
        x = PF.embedding(ids, self.shared) + self.position
        x = self.norm(x + self.c_proj(self.act(self.c_fc(x))))
        return paddle.einsum("bnd,vd->bnv", x, self.shared).reshape([-1, 12])


def tied_matmul(w: State) -> State:
    return {**sames(w, "wte wpe ln_f"), **lins(w, "mlp.0 mlp.2")}


def tied_parameter(w: State) -> State:
    return {
        "shared": w["wte.weight"],
        "position": w["wpe.weight"][None],
        **same(w, "ln_f", "norm"),
        **lins(w, {"mlp.0": "c_fc", "mlp.2": "c_proj"}),
    }


# A table that one side stores and the other works out.


def sinusoids(length: int, size: int) -> np.ndarray:
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, size, 2) / size)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, size)


class StoredTable(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = tn.Embedding(12, 6)
        self.register_buffer("pe", torch.from_numpy(sinusoids(9, 6)).to(torch.get_default_dtype())[None])
        self.fc1, self.fc2 = tn.Linear(6, 6), tn.Linear(6, 4)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids) * math.sqrt(6) + self.pe[:, : ids.shape[1]]
        return self.fc2(torch.relu(self.fc1(x)).mean(1))


class WorkedOutTable(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.fc1, self.fc2 = pn.Embedding(12, 6), pn.Linear(6, 6), pn.Linear(6, 4)

    def positions(self, n: int, dtype: Any) -> Any:
        speed = paddle.to_tensor([10000 ** (-i / 6) for i in (0, 2, 4)], dtype=dtype)
        angles = paddle.arange(n).astype(dtype).unsqueeze(1) * speed
        return paddle.stack([paddle.sin(angles), paddle.cos(angles)], axis=-1).flatten(1)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        x = x * 6**0.5 + self.positions(ids.shape[1], x.dtype)
        return self.fc2(PF.relu(self.fc1(x)).mean(1))


class FrozenTable(pn.Layer):
    """As a frozen embedding, longer than needed; the scale is multiplied into the words' table."""

    def __init__(self) -> None:
        super().__init__()
        self.pos = pn.Embedding(20, 6)
        self.pos.weight.set_value(sinusoids(20, 6).astype(paddle.get_default_dtype()))
        self.pos.weight.stop_gradient = True
        self.tok = pn.Embedding(12, 6)
        self.hidden, self.cls = pn.Linear(6, 6), pn.Linear(6, 4)

    def forward(self, ids: Any) -> Any:
        x = self.tok(ids) + self.pos(paddle.arange(ids.shape[1]))
        return self.cls(PF.relu(self.hidden(x)).mean(1))


# Parts that one side has and never uses.


class WithPooler(tn.Module):
    """A BERT-like start with a pooler and a second head that this task does not call."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.position, self.kind = tn.Embedding(12, 6), tn.Embedding(6, 6), tn.Embedding(2, 6)
        self.norm = tn.LayerNorm(6, eps=1e-12)
        self.dense = tn.Linear(6, 6)
        self.pooler = tn.Linear(6, 6)
        self.seq_relationship = tn.Linear(6, 2)
        self.tags = tn.Linear(6, 3)

    def forward(self, ids: Any, kinds: Any) -> Any:
        x = self.word(ids) + self.position(torch.arange(ids.shape[1])) + self.kind(kinds)
        return self.tags(TF.gelu(self.dense(self.norm(x)))).flatten(0, 1)


class WithoutPooler(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.word, self.position, self.kind = pn.Embedding(12, 6), pn.Embedding(6, 6), pn.Embedding(2, 6)
        self.norm, self.dense, self.tags = pn.LayerNorm(6, epsilon=1e-12), pn.Linear(6, 6), pn.Linear(6, 3)

    def forward(self, ids: Any, kinds: Any) -> Any:
        x = self.word(ids) + self.position(paddle.arange(ids.shape[1])) + self.kind(kinds)
        return self.tags(PF.gelu(self.dense(self.norm(x)))).flatten(0, 1)


class OtherUnused(pn.Layer):
    """Has unused parts of its own; kinds by a product with a one-hot table."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = pn.Linear(6, 6)
        self.encoder = pn.Sequential(pn.LayerNorm(6, epsilon=1e-12), pn.Linear(6, 6), pn.GELU(), pn.Linear(6, 3))
        self.unused_norm = pn.LayerNorm(6)
        self.places, self.tokens = pn.Embedding(6, 6), pn.Embedding(12, 6)
        self.segment = self.create_parameter([2, 6])

    def forward(self, ids: Any, kinds: Any) -> Any:
        x = self.tokens(ids) + self.places.weight
        x = x + PF.one_hot(kinds, 2).astype(x.dtype) @ self.segment
        return self.encoder(x).flatten(0, 1)


# GPT-2: weights stored as (in, out), packed, outputs in an object.


class Conv1D(tn.Module):
    def __init__(self, n_out: int, n_in: int) -> None:
        super().__init__()
        self.weight, self.bias = tn.Parameter(0.3 * torch.randn(n_in, n_out)), tn.Parameter(torch.zeros(n_out))

    def forward(self, x: Any) -> Any:
        return x @ self.weight + self.bias


class GptBlock(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = tn.LayerNorm(D), tn.LayerNorm(D)
        self.c_attn, self.c_proj = Conv1D(3 * D, D), Conv1D(D, D)
        self.c_fc, self.c_out = Conv1D(16, D), Conv1D(D, 16)

    def forward(self, x: Any) -> Any:
        q, k, v = (t_heads(part) for part in self.c_attn(self.ln_1(x)).split(D, -1))
        y = TF.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).flatten(2))
        return x + self.c_out(TF.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


@dataclass
class ModelOutput:
    logits: Any
    hidden: Any


class Gpt(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte = tn.Embedding(11, D)
        self.h = tn.ModuleList([GptBlock(), GptBlock()])
        self.ln_f = tn.LayerNorm(D)

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids)
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        return ModelOutput(logits=x @ self.wte.weight.T, hidden=x)


def gpt_loss(outputs: Any, targets: Any) -> Any:
    return TF.cross_entropy(outputs.logits.flatten(0, 1), targets.flatten())


class GptLayer(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = pn.LayerNorm(D), pn.LayerNorm(D)
        self.q, self.k, self.v, self.o = (pn.Linear(D, D) for _ in range(4))
        self.fc1, self.fc2 = pn.Linear(D, 16), pn.Linear(16, D)

    def forward(self, x: Any) -> Any:
        y, n = self.norm1(x), x.shape[1]
        q, k, v = (p_heads(layer(y)) for layer in (self.q, self.k, self.v))
        mask = paddle.triu(paddle.full([n, n], -1e9, x.dtype), 1)
        y = PF.softmax(q @ k.transpose([0, 1, 3, 2]) / 2.0 + mask, axis=-1) @ v
        x = x + self.o(p_join(y))
        return x + self.fc2(PF.gelu(self.fc1(self.norm2(x)), approximate=True))


class GptDict(pn.Layer):
    """Separate layers; a dict comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = pn.Embedding(11, D)
        self.layers = pn.LayerList([GptLayer(), GptLayer()])
        self.norm = pn.LayerNorm(D)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return {"logits": paddle.matmul(x, self.embed.weight, transpose_y=True), "hidden": x}


class GptTuple(pn.Layer):
    """Packed layers held in lists by kind, not by block; a tuple comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.table = self.create_parameter([11, D])
        self.qkv, self.proj = (pn.LayerList([pn.Linear(D, n) for _ in range(2)]) for n in (3 * D, D))
        self.inner, self.outer = (pn.LayerList([pn.Linear(*n) for _ in range(2)]) for n in ((D, 16), (16, D)))
        self.norms = pn.LayerList([pn.LayerNorm(D) for _ in range(5)])

    def forward(self, ids: Any) -> Any:
        x = PF.embedding(ids, self.table)
        b, n = ids.shape
        for i in range(2):
            q, k, v = self.qkv[i](self.norms[2 * i](x)).reshape([b, n, 3, H, K]).unbind(2)
            x = x + self.proj[i](PF.scaled_dot_product_attention(q, k, v, is_causal=True).flatten(2))
            x = x + self.outer[i](PF.gelu(self.inner[i](self.norms[2 * i + 1](x)), approximate=True))
        x = self.norms[4](x)
        return x @ self.table.T, x


def gpt_dict_loss(outputs: Any, targets: Any) -> Any:
    return PF.cross_entropy(outputs["logits"].flatten(0, 1), targets.flatten())


def gpt_tuple_loss(outputs: Any, targets: Any) -> Any:
    return paddle_entropy_by_hand(outputs[0].reshape([-1, 11]), targets.reshape([-1]))


def gpt_dict(w: State) -> State:
    made = sames(w, {"wte": "embed", "ln_f": "norm"})
    for i in range(2):
        old, new = f"h.{i}", f"layers.{i}"
        made |= sames(w, {f"{old}.ln_1": f"{new}.norm1", f"{old}.ln_2": f"{new}.norm2", f"{old}.c_proj": f"{new}.o",
                          f"{old}.c_fc": f"{new}.fc1", f"{old}.c_out": f"{new}.fc2"})  # fmt: skip
        for leaf in ("weight", "bias"):
            for letter, part in zip("qkv", np.split(w[f"{old}.c_attn.{leaf}"], 3, -1), strict=True):
                made[f"{new}.{letter}.{leaf}"] = part
    return made


def gpt_tuple(w: State) -> State:
    made = {"table": w["wte.weight"], **same(w, "ln_f", "norms.4")}
    for i in range(2):
        made |= sames(w, {f"h.{i}.ln_1": f"norms.{2 * i}", f"h.{i}.ln_2": f"norms.{2 * i + 1}",
                          f"h.{i}.c_attn": f"qkv.{i}", f"h.{i}.c_proj": f"proj.{i}", f"h.{i}.c_fc": f"inner.{i}",
                          f"h.{i}.c_out": f"outer.{i}"})  # fmt: skip
    return made


# A Llama-like decoder: everything at once.


class LlamaNorm(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = tn.Parameter(torch.ones(D))

    def forward(self, x: Any) -> Any:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x)


def t_turn(x: Any) -> Any:
    angles = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * 10.0 ** (-torch.arange(2, dtype=x.dtype))
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    return x * cos + torch.cat([-x[..., 2:], x[..., :2]], -1) * sin


class LlamaLayer(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = LlamaNorm(), LlamaNorm()
        self.q_proj, self.o_proj = tn.Linear(D, D, bias=False), tn.Linear(D, D, bias=False)
        self.k_proj, self.v_proj = tn.Linear(D, K, bias=False), tn.Linear(D, K, bias=False)
        self.gate_proj, self.up_proj = tn.Linear(D, 12, bias=False), tn.Linear(D, 12, bias=False)
        self.down_proj = tn.Linear(12, D, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.input_layernorm(x)
        q, k, v = (t_heads(layer(y)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        k, v = t_turn(k).repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        mask = torch.full((x.shape[1],) * 2, -1e9, dtype=x.dtype).triu(1)
        y = torch.softmax(t_turn(q) @ k.transpose(-1, -2) / 2.0 + mask, -1) @ v
        x = x + self.o_proj(y.transpose(1, 2).flatten(2))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(TF.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = tn.Embedding(11, D)
        self.layers = tn.ModuleList([LlamaLayer(), LlamaLayer()])
        self.norm, self.lm_head = LlamaNorm(), tn.Linear(D, 11, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x)).flatten(0, 1)


class PaddleLlamaNorm(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([D], default_initializer=pn.initializer.Constant(1.0))

    def forward(self, x: Any) -> Any:
        wide = x.astype("float32")
        return (paddle.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5) * wide).astype(x.dtype) * self.weight


def p_turn(x: Any) -> Any:
    """Rotation of the two halves, written apart."""
    angles = paddle.arange(x.shape[2]).astype(x.dtype).unsqueeze(1) * paddle.to_tensor([1.0, 0.1], dtype=x.dtype)
    left, right, cos, sin = x[..., :2], x[..., 2:], paddle.cos(angles), paddle.sin(angles)
    return paddle.concat([left * cos - right * sin, left * sin + right * cos], axis=-1)


class FusedLayer(pn.Layer):
    """qkv in one layer, gate and up in another."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = PaddleLlamaNorm(), PaddleLlamaNorm()
        self.qkv_proj, self.o_proj = pn.Linear(D, D + 2 * K, bias_attr=False), pn.Linear(D, D, bias_attr=False)
        self.gate_up, self.down = pn.Linear(D, 24, bias_attr=False), pn.Linear(12, D, bias_attr=False)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv_proj(self.norm1(x)).split([D, K, K], axis=-1)
        n = x.shape[1]
        q, k, v = p_turn(p_heads(q)), p_turn(p_heads(k)), p_heads(v)
        mask = paddle.triu(paddle.full([n, n], -1e9, x.dtype), 1)
        k, v = (part.expand([part.shape[0], H, n, K]) for part in (k, v))
        y = PF.softmax(q @ k.transpose([0, 1, 3, 2]) / 2.0 + mask, axis=-1) @ v
        x = x + self.o_proj(p_join(y))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, axis=-1)
        return x + self.down(PF.silu(gate) * up)


class PlainLayer(pn.Layer):
    """Other names, some of them misleading: w1 and w3 as Meta has them, norms whose digits are exchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = (pn.Linear(i, o, bias_attr=False) for i, o in ((D, 12), (12, D), (D, 12)))
        self.norm1, self.norm0 = PaddleLlamaNorm(), PaddleLlamaNorm()
        self.wv, self.wk, self.wq, self.wo = (pn.Linear(D, n, bias_attr=False) for n in (K, K, D, D))

    def forward(self, x: Any) -> Any:
        y, n = self.norm1(x), x.shape[1]
        q, k, v = p_turn(p_heads(self.wq(y))), p_turn(p_heads(self.wk(y))), p_heads(self.wv(y))
        k, v = k.repeat_interleave(2, axis=1), v.repeat_interleave(2, axis=1)
        scores = paddle.einsum("bhnk,bhmk->bhnm", q, k) / 2.0
        scores = paddle.where(paddle.tril(paddle.ones([n, n], "bool")), scores, paddle.full_like(scores, -1e9))
        x = x + self.wo(p_join(PF.softmax(scores, axis=-1) @ v))
        y = self.norm0(x)
        return x + self.w2(PF.silu(self.w1(y)) * self.w3(y))


class PaddleLlama(pn.Layer):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.tok_embeddings = pn.Embedding(11, D)
        self.layers = pn.LayerList([kind(), kind()])
        self.norm, self.output = PaddleLlamaNorm(), pn.Linear(D, 11, bias_attr=False)

    def forward(self, ids: Any) -> Any:
        x = self.tok_embeddings(ids)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x)).flatten(0, 1)


def llama_fused(w: State) -> State:
    made = {**sames(w, {"embed_tokens": "tok_embeddings", "norm": "norm"}), **lin(w, "lm_head", "output")}
    for i in range(2):
        at = f"layers.{i}"
        made |= lins(w, {f"{at}.o_proj": f"{at}.o_proj", f"{at}.down_proj": f"{at}.down"})
        made |= sames(w, {f"{at}.input_layernorm": f"{at}.norm1", f"{at}.post_attention_layernorm": f"{at}.norm2"})
        made[f"{at}.qkv_proj.weight"] = np.concatenate([w[f"{at}.{x}_proj.weight"] for x in "qkv"]).T
        made[f"{at}.gate_up.weight"] = np.concatenate([w[f"{at}.{x}_proj.weight"] for x in ("gate", "up")]).T
    return made


def llama_plain(w: State) -> State:
    made = {**sames(w, {"embed_tokens": "tok_embeddings", "norm": "norm"}), **lin(w, "lm_head", "output")}
    names = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3", **{f"{x}_proj": f"w{x}" for x in "qkvo"}}
    for i in range(2):
        at = f"layers.{i}"
        made |= lins(w, {f"{at}.{old}": f"{at}.{new}" for old, new in names.items()})
        made |= sames(w, {f"{at}.input_layernorm": f"{at}.norm1", f"{at}.post_attention_layernorm": f"{at}.norm0"})
    return made


# One big table for several features; an embedding bag.


class Features(tn.Module):
    """A recommender: three tables, dot products and a deep part."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item, self.hour = tn.Embedding(7, 4), tn.Embedding(7, 4), tn.Embedding(7, 4)
        self.deep = tn.Sequential(tn.Linear(12, 6), tn.ReLU(), tn.Linear(6, 1))
        self.bias = tn.Parameter(torch.zeros(1))

    def forward(self, fields: Any) -> Any:
        u, i, h = self.user(fields[:, 0]), self.item(fields[:, 1]), self.hour(fields[:, 2])
        pairs = (u * i).sum(1) + (u * h).sum(1) + (i * h).sum(1)
        return pairs + self.deep(torch.cat([u, i, h], 1))[:, 0] + self.bias


class FeaturesOneTable(pn.Layer):
    """One table with offsets; pairs as half of the square of a sum less the sum of squares."""

    def __init__(self) -> None:
        super().__init__()
        self.table = pn.Embedding(21, 4)
        self.fc1, self.fc2 = pn.Linear(12, 6), pn.Linear(6, 1)
        self.offset = self.create_parameter([1], is_bias=True)

    def forward(self, fields: Any) -> Any:
        e = self.table(fields + paddle.to_tensor([0, 7, 14]))
        pairs = 0.5 * (e.sum(1) ** 2 - (e**2).sum(1)).sum(1)
        return pairs + self.fc2(PF.relu(self.fc1(e.flatten(1)))).squeeze(1) + self.offset


class FeaturesList(pn.Layer):
    """Tables in a list, in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = pn.LayerList([pn.Embedding(7, 4) for _ in range(3)])
        self.deep = pn.Sequential(pn.Linear(12, 6), pn.ReLU(), pn.Linear(6, 1))
        self.bias = self.create_parameter([1], is_bias=True)

    def forward(self, fields: Any) -> Any:
        hour, user, item = (table(fields[:, i]) for table, i in zip(self.tables, (2, 0, 1), strict=True))
        pairs = (user * item + user * hour + item * hour).sum(1)
        return pairs + self.deep(paddle.concat([user, item, hour], axis=1)).squeeze(-1) + self.bias


def features_one(w: State) -> State:
    whole = np.concatenate([w[f"{name}.weight"] for name in ("user", "item", "hour")])
    return {"table.weight": whole, **lins(w, {"deep.0": "fc1", "deep.2": "fc2"}), "offset": w["bias"]}


def features_list(w: State) -> State:
    names = {"hour": "tables.0", "user": "tables.1", "item": "tables.2"}
    return {**sames(w, names), **lins(w, "deep.0 deep.2"), "bias": w["bias"]}


class Bag(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = tn.EmbeddingBag(15, 6, mode="mean")
        self.mix = tn.Bilinear(6, 4, 5)
        self.out = tn.Linear(5, 2)

    def forward(self, ids: Any, x: Any) -> Any:
        return self.out(torch.tanh(self.mix(self.bag(ids), x)))


class BagMean(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.mix, self.out = pn.Embedding(15, 6), pn.Bilinear(6, 4, 5), pn.Linear(5, 2)

    def forward(self, ids: Any, x: Any) -> Any:
        return self.out(PF.tanh(self.mix(self.emb(ids).mean(1), x)))


class BagCounts(pn.Layer):
    """A product with counts of words; the bilinear form as a layer on outer products."""

    def __init__(self) -> None:
        super().__init__()
        self.words = self.create_parameter([15, 6])
        self.outer, self.last = pn.Linear(24, 5), pn.Linear(5, 2)

    def forward(self, ids: Any, x: Any) -> Any:
        counts = PF.one_hot(ids, 15).astype(x.dtype).mean(1)
        pairs = (counts @ self.words).unsqueeze(2) * x.unsqueeze(1)
        return self.last(PF.tanh(self.outer(pairs.flatten(1))))


def bag_mean(w: State) -> State:
    return {**same(w, "bag", "emb"), "mix.weight": w["mix.weight"], "mix.bias": w["mix.bias"][None], **lins(w, "out")}


def bag_counts(w: State) -> State:
    return {
        "words": w["bag.weight"],
        "outer.weight": w["mix.weight"].reshape(5, 24).T,
        "outer.bias": w["mix.bias"],
        **lin(w, "out", "last"),
    }


_NAMES = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}

PORTS = (
    Port(
        "swiglu", SwiGLU,
        (
            Formulation("separate", SwiGLUSeparate, lambda w: lins(w, _NAMES)),
            Formulation("packed", SwiGLUPacked, swiglu_packed),
            Formulation("function", SwiGLUFunction, swiglu_function),
            Formulation(
                "meaningless",
                lambda: reregistered(renamed(SwiGLUSeparate, w1="b", w2="a", w3="c")()),
                lambda w: lins(w, {"gate_proj": "b", "down_proj": "a", "up_proj": "c"}),
            ),
        ),
        {"x": floats(5, 6)}, floats(5, 6), SQUARE, swap=True,
    ),
    Port(
        "experts", Experts,
        (Formulation("stacked", ExpertsStacked, experts_stacked), Formulation("list", ExpertsList, experts_list)),
        {"x": floats(9, 6)}, floats(9, 6), SQUARE,
    ),
    Port(
        "lora", LoRA,
        (Formulation("merged", LoRAMerged, lora_merged), Formulation("parameters", LoRAParameters, lora_parameters)),
        {"x": floats(4, 6)}, mode="eval",
    ),
    Port(
        "tied", Tied,
        (
            Formulation("matmul", TiedMatmul, tied_matmul),
            Formulation("parameter", TiedParameter, tied_parameter, loss=paddle_entropy_by_hand),
        ),
        {"ids": ints(12, 3, 5)}, ints(12, 15), ENTROPY, swap=True,
    ),
    Port(
        "stored_table", StoredTable,
        (
            Formulation("worked_out", WorkedOutTable, lambda w: {**same(w, "words"), **lins(w, "fc1 fc2")}),
            Formulation(
                "frozen", FrozenTable,
                lambda w: {"tok.weight": w["words.weight"] * math.sqrt(6), **lins(w, {"fc1": "hidden", "fc2": "cls"})},
                unused=("pos.",),
            ),
        ),
        {"ids": ints(12, 3, 7)}, kept=frozenset({"pe"}),
    ),
    Port(
        "with_pooler", WithPooler,
        (
            Formulation("without", WithoutPooler, lambda w: {
                **sames(w, "word position kind norm"), **lins(w, "dense tags"),
            }),
            Formulation(
                "other", OtherUnused,
                lambda w: {
                    **sames(w, {"word": "tokens", "position": "places", "norm": "encoder.0"}),
                    "segment": w["kind.weight"], **lins(w, {"dense": "encoder.1", "tags": "encoder.3"}),
                },
                unused=("spare.", "unused_norm."),
            ),
        ),
        {"ids": ints(12, 2, 6), "kinds": ints(2, 2, 6)}, ints(3, 12), ENTROPY, swap=True,
    ),
    Port(
        "gpt", Gpt,
        (
            Formulation("dict", GptDict, gpt_dict),
            Formulation("tuple", GptTuple, gpt_tuple, loss=gpt_tuple_loss),
        ),
        {"ids": ints(11, 2, 5)}, ints(11, 2, 5), (gpt_loss, gpt_dict_loss),
    ),
    Port(
        "llama", Llama,
        (
            Formulation("fused", lambda: PaddleLlama(FusedLayer), llama_fused),
            Formulation("plain", lambda: PaddleLlama(PlainLayer), llama_plain),
        ),
        {"ids": ints(11, 2, 5)}, ints(11, 10), ENTROPY, tolerance=1e-6, seeds=(0, 1, 2, 3, 4, 5),
    ),
    Port(
        "features", Features,
        (Formulation("one_table", FeaturesOneTable, features_one), Formulation("list", FeaturesList, features_list)),
        {"fields": ints(7, 5, 3)}, floats(5), SQUARE, swap=True,
    ),
    Port(
        "bag", Bag,
        (Formulation("mean", BagMean, bag_mean), Formulation("counts", BagCounts, bag_counts)),
        {"ids": ints(15, 3, 4), "x": floats(3, 4)}, floats(3, 2), SQUARE,
    ),
)  # fmt: skip
