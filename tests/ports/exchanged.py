"""Pairs in which two equal-shaped layers exchange roles: the candidate computes the same, under crossed names.

Each row has a kind of model, the names of its parts in the reference and in the candidate, by role. Where the names are
informative they disagree with the only map that fits, and a checkpoint loaded by name would be wrong: this must be
told. Where they say nothing, the map must be shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pn
from torch import nn as tn

from ports.families import language
from ports.port import ENTROPY, SQUARE, Formulation, Port, State, floats, ints, lins, renamed, same


@dataclass(frozen=True)
class Kind:
    """A pair of classes whose parts have roles; `linear` are those stored transposed."""

    torch: Any
    paddle: Any
    inputs: Mapping[str, Any]
    targets: Any
    linear: str
    plain: str = ""
    loss: Any = SQUARE


@dataclass(frozen=True)
class Exchanged:
    name: str
    kind: str
    reference: Mapping[str, str]
    """Role → name; a role that is not given has the role's own name."""
    candidate: Mapping[str, str]
    exchanged: tuple[str, str]
    """The two roles whose names cross."""
    informative: bool

    @property
    def crossing(self) -> tuple[tuple[str, str], ...]:
        """(name in the reference, name in the candidate) of each of the two."""
        return tuple((self.reference.get(role, role), self.candidate.get(role, role)) for role in self.exchanged)


class TGated(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = tn.Linear(6, 9), tn.Linear(6, 9), tn.Linear(9, 6)

    def forward(self, x: Any) -> Any:
        return x + self.down(TF.silu(self.gate(x)) * self.up(x))


class PGated(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = pn.Linear(6, 9), pn.Linear(6, 9), pn.Linear(9, 6)

    def forward(self, x: Any) -> Any:
        return x + self.down(PF.silu(self.gate(x)) * self.up(x))


class TAttention(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (tn.Linear(6, 6) for _ in range(4))

    def forward(self, x: Any) -> Any:
        scores = torch.softmax(self.q(x) @ self.k(x).transpose(1, 2) / 6**0.5, -1)
        return x + self.o(scores @ self.v(x))


class PAttention(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (pn.Linear(6, 6) for _ in range(4))

    def forward(self, x: Any) -> Any:
        scores = PF.softmax(self.q(x) @ self.k(x).transpose([0, 2, 1]) / 6**0.5, axis=-1)
        return x + self.o(scores @ self.v(x))


class TMoments(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.mean, self.spread, self.out = (tn.Linear(*n) for n in ((6, 8), (8, 3), (8, 3), (3, 6)))

    def forward(self, x: Any, noise: Any) -> Any:
        h = torch.tanh(self.body(x))
        return self.out(self.mean(h) + noise * torch.exp(0.5 * self.spread(h)))


class PMoments(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.mean, self.spread, self.out = (pn.Linear(*n) for n in ((6, 8), (8, 3), (8, 3), (3, 6)))

    def forward(self, x: Any, noise: Any) -> Any:
        h = PF.tanh(self.body(x))
        return self.out(self.mean(h) + noise * paddle.exp(0.5 * self.spread(h)))


class TTables(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word, self.place, self.head = tn.Embedding(8, 5), tn.Embedding(8, 5), tn.Linear(5, 4)

    def forward(self, ids: Any) -> Any:
        return self.head(torch.tanh(self.word(ids) + self.place(torch.arange(ids.shape[1]))).mean(1))


class PTables(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.word, self.place, self.head = pn.Embedding(8, 5), pn.Embedding(8, 5), pn.Linear(5, 4)

    def forward(self, ids: Any) -> Any:
        return self.head(PF.tanh(self.word(ids) + self.place(paddle.arange(ids.shape[1]))).mean(1))


class TBranches(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.join = (
            tn.Conv1d(4, 5, 3, padding=1),
            tn.Conv1d(4, 5, 3, padding=1),
            tn.Linear(5, 3),
        )

    def forward(self, x: Any) -> Any:
        return self.join((torch.tanh(self.first(x)) * torch.sigmoid(self.second(x))).mean(2))


class PBranches(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.join = (
            pn.Conv1D(4, 5, 3, padding=1),
            pn.Conv1D(4, 5, 3, padding=1),
            pn.Linear(5, 3),
        )

    def forward(self, x: Any) -> Any:
        return self.join((PF.tanh(self.first(x)) * PF.sigmoid(self.second(x))).mean(2))


class TTowers(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = tn.Linear(6, 5), tn.Linear(6, 5), tn.Linear(5, 2)

    def forward(self, a: Any, b: Any) -> Any:
        return self.head(torch.relu(self.left(a)) - torch.tanh(self.right(b)))


class PTowers(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = pn.Linear(6, 5), pn.Linear(6, 5), pn.Linear(5, 2)

    def forward(self, a: Any, b: Any) -> Any:
        return self.head(PF.relu(self.left(a)) - PF.tanh(self.right(b)))


class TModulated(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.scale, self.shift, self.out = (tn.Linear(*n) for n in ((5, 6), (4, 6), (4, 6), (6, 3)))

    def forward(self, x: Any, t: Any) -> Any:
        return self.out(TF.gelu(self.body(x) * (1 + self.scale(t)) + self.shift(t)))


class PModulated(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.scale, self.shift, self.out = (pn.Linear(*n) for n in ((5, 6), (4, 6), (4, 6), (6, 3)))

    def forward(self, x: Any, t: Any) -> Any:
        return self.out(PF.gelu(self.body(x) * (1 + self.scale(t)) + self.shift(t)))


class TGates(tn.Module):
    """An LSTM whose gates are layers of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.i, self.f, self.g, self.o = (tn.Linear(8, 5) for _ in range(4))
        self.head = tn.Linear(5, 2)

    def forward(self, series: Any) -> Any:
        h = c = series.new_zeros(len(series), 5)
        for x in series.unbind(1):
            both = torch.cat([x, h], 1)
            c = torch.sigmoid(self.f(both)) * c + torch.sigmoid(self.i(both)) * torch.tanh(self.g(both))
            h = torch.sigmoid(self.o(both)) * torch.tanh(c)
        return self.head(h)


class PGates(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.i, self.f, self.g, self.o = (pn.Linear(8, 5) for _ in range(4))
        self.head = pn.Linear(5, 2)

    def forward(self, series: Any) -> Any:
        h = c = paddle.zeros([series.shape[0], 5], series.dtype)
        for t in range(series.shape[1]):
            both = paddle.concat([series[:, t], h], axis=1)
            c = PF.sigmoid(self.f(both)) * c + PF.sigmoid(self.i(both)) * PF.tanh(self.g(both))
            h = PF.sigmoid(self.o(both)) * PF.tanh(c)
        return self.head(h)


class TNorms(tn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = tn.LayerNorm(6), tn.LayerNorm(6)
        self.enter, self.leave = tn.Linear(6, 9), tn.Linear(9, 6)

    def forward(self, x: Any) -> Any:
        return self.after(x + self.leave(TF.gelu(self.enter(self.before(x)))))


class PNorms(pn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = pn.LayerNorm(6), pn.LayerNorm(6)
        self.enter, self.leave = pn.Linear(6, 9), pn.Linear(9, 6)

    def forward(self, x: Any) -> Any:
        return self.after(x + self.leave(PF.gelu(self.enter(self.before(x)))))


KINDS = {
    "gated": Kind(TGated, PGated, {"x": floats(5, 6)}, floats(5, 6), "gate up down"),
    "attention": Kind(TAttention, PAttention, {"x": floats(2, 4, 6)}, floats(2, 4, 6), "q k v o"),
    "moments": Kind(
        TMoments, PMoments, {"x": floats(4, 6), "noise": floats(4, 3)}, floats(4, 6), "body mean spread out"
    ),
    "tables": Kind(TTables, PTables, {"ids": ints(8, 3, 8)}, ints(4, 3), "head", "word place", ENTROPY),
    "branches": Kind(TBranches, PBranches, {"x": floats(3, 4, 7)}, floats(3, 3), "join", "first second"),
    "towers": Kind(TTowers, PTowers, {"a": floats(4, 6), "b": floats(4, 6)}, floats(4, 2), "left right head"),
    "modulated": Kind(
        TModulated, PModulated, {"x": floats(4, 5), "t": floats(4, 4)}, floats(4, 3), "body scale shift out"
    ),
    "gates": Kind(TGates, PGates, {"series": floats(3, 4, 3)}, floats(3, 2), "i f g o head"),
    "norms": Kind(TNorms, PNorms, {"x": floats(5, 6)}, floats(5, 6), "enter leave", "before after"),
}


def port_of(row: Exchanged) -> Port:
    """The pair as a port: its converter carries the weights crosswise, as the function needs it."""
    if row.kind == "llama":
        return _llama(row)
    kind = KINDS[row.kind]
    ours, theirs = row.reference, row.candidate

    def convert(w: State) -> State:
        made = lins(w, {ours.get(role, role): theirs.get(role, role) for role in kind.linear.split()})
        for role in kind.plain.split():
            made |= same(w, ours.get(role, role), theirs.get(role, role))
        return made

    formulation = Formulation("crossed", renamed(kind.paddle, **theirs), convert)
    return Port(row.name, renamed(kind.torch, **ours), (formulation,), kind.inputs, kind.targets, kind.loss)


def _llama(row: Exchanged) -> Port:
    names = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    names |= {letter: f"{letter}_proj" for letter in "qkvo"}
    roles = {"gate": "w1", "up": "w3", "down": "w2", **{letter: f"w{letter}" for letter in "qkvo"}}
    layer = renamed(language.PlainLayer, **{roles[role]: name for role, name in row.candidate.items()})

    def convert(w: State) -> State:
        made = {
            name: np.asarray(array)
            for name, array in language.llama_plain(w).items()
            if name.split(".")[-2] not in roles.values()
        }
        for i in range(2):
            for role in roles:
                made |= lins(w, {f"layers.{i}.{names[role]}": f"layers.{i}.{row.candidate.get(role, roles[role])}"})
        return made

    formulation = Formulation("crossed", lambda: language.PaddleLlama(layer), convert)
    inputs, targets = {"ids": ints(11, 2, 5)}, ints(11, 10)
    return Port(row.name, language.Llama, (formulation,), inputs, targets, ENTROPY, tolerance=1e-6)


_HF = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
_QKV = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
_LONG = {"q": "query", "k": "key", "v": "value", "o": "output"}
_E = Exchanged

EXCHANGED = (
    _E("gate_up", "gated", _HF, {"gate": "up", "up": "gate", "down": "down"}, ("gate", "up"), True),
    _E("gate_up_same_names", "gated", _HF, {**_HF, "gate": "up_proj", "up": "gate_proj"}, ("gate", "up"), True),
    _E("gate_up_fc", "gated", _HF, {"gate": "fc_up", "up": "fc_gate", "down": "fc_down"}, ("gate", "up"), True),
    _E("gate_up_digits", "gated", _HF, {"gate": "w3", "up": "w1", "down": "w2"}, ("gate", "up"), False),
    _E("gate_up_letters", "gated", {"gate": "a", "up": "b", "down": "c"}, {"gate": "l1", "up": "l0", "down": "l2"},
       ("gate", "up"), False),
    _E("key_value", "attention", _QKV, {"q": "wq", "k": "wv", "v": "wk", "o": "wo"}, ("k", "v"), True),
    _E("key_value_long", "attention", _LONG, {"q": "q_lin", "k": "v_lin", "v": "k_lin", "o": "out_lin"}, ("k", "v"),
       True),
    _E("query_key", "attention", _QKV, {"q": "key", "k": "query", "v": "value", "o": "out"}, ("q", "k"), True),
    _E("query_value_same_names", "attention", _LONG, {**_LONG, "q": "value", "v": "query"}, ("q", "v"), True),
    _E("value_output", "attention", _QKV, {"q": "to_q", "k": "to_k", "v": "to_out", "o": "to_v"}, ("v", "o"), True),
    _E("attention_digits", "attention", {"q": "l0", "k": "l1", "v": "l2", "o": "l3"},
       {"q": "m0", "k": "m2", "v": "m1", "o": "m3"}, ("k", "v"), False),
    _E("attention_greek", "attention", {"q": "theta", "k": "phi", "v": "g", "o": "z"},
       {"q": "lin_b", "k": "lin_a", "v": "lin_c", "o": "lin_d"}, ("q", "k"), False),
    _E("mu_logvar", "moments", {"mean": "mu", "spread": "logvar"}, {"mean": "log_var", "spread": "mean"},
       ("mean", "spread"), True),
    _E("mean_std", "moments", {"mean": "fc_mean", "spread": "fc_std"}, {"mean": "to_std", "spread": "to_mean"},
       ("mean", "spread"), True),
    _E("mu_logvar_same_names", "moments", {"mean": "mu", "spread": "logvar"}, {"mean": "logvar", "spread": "mu"},
       ("mean", "spread"), True),
    _E("moments_digits", "moments", {"mean": "fc21", "spread": "fc22"}, {"mean": "head2", "spread": "head1"},
       ("mean", "spread"), False),
    _E("words_places", "tables", {"word": "word_embeddings", "place": "position_embeddings"},
       {"word": "pos_emb", "place": "word_emb"}, ("word", "place"), True),
    _E("tokens_positions", "tables", {"word": "token", "place": "position"}, {"word": "positions", "place": "tokens"},
       ("word", "place"), True),
    _E("tables_digits", "tables", {"word": "emb1", "place": "emb2"}, {"word": "table_b", "place": "table_a"},
       ("word", "place"), False),
    _E("filter_gate", "branches", {"first": "filter_conv", "second": "gate_conv"},
       {"first": "conv_gate", "second": "conv_filter"}, ("first", "second"), True),
    _E("tanh_sigmoid", "branches", {"first": "tanh_branch", "second": "sigmoid_branch"},
       {"first": "sigm", "second": "tanh"}, ("first", "second"), True),
    _E("branches_letters", "branches", {"first": "a", "second": "b"}, {"first": "right", "second": "left"},
       ("first", "second"), False),
    _E("image_text", "towers", {"left": "image_encoder", "right": "text_encoder"},
       {"left": "text_tower", "right": "image_tower"}, ("left", "right"), True),
    _E("user_item", "towers", {"left": "user", "right": "item"}, {"left": "item_net", "right": "user_net"},
       ("left", "right"), True),
    _E("towers_digits", "towers", {"left": "net1", "right": "net2"}, {"left": "t", "right": "s"}, ("left", "right"),
       False),
    _E("scale_shift", "modulated", {}, {"scale": "to_shift", "shift": "to_scale"}, ("scale", "shift"), True),
    _E("gamma_beta", "modulated", {"scale": "to_gamma", "shift": "to_beta"}, {"scale": "beta", "shift": "gamma"},
       ("scale", "shift"), True),
    _E("input_forget", "gates", {"i": "input_gate", "f": "forget_gate", "g": "cell_gate", "o": "output_gate"},
       {"i": "forget", "f": "input", "g": "cell", "o": "output"}, ("i", "f"), True),
    _E("input_output", "gates", {"i": "w_in", "f": "w_forget", "g": "w_new", "o": "w_out"},
       {"i": "gate_out", "f": "gate_forget", "g": "gate_new", "o": "gate_in"}, ("i", "o"), True),
    _E("gates_digits", "gates", {"i": "u0", "f": "u1", "g": "u2", "o": "u3"},
       {"i": "p1", "f": "p0", "g": "p2", "o": "p3"}, ("i", "f"), False),
    _E("pre_post", "norms", {"before": "pre_norm", "after": "post_norm"}, {"before": "norm_post", "after": "norm_pre"},
       ("before", "after"), True),
    _E("llama_gate_up", "llama", {"gate": "layers.0.gate_proj", "up": "layers.0.up_proj"},
       {"gate": "up", "up": "gate", "down": "down"}, ("gate", "up"), True),
    _E("llama_key_value", "llama", {"k": "layers.0.k_proj", "v": "layers.0.v_proj"},
       {"k": "value", "v": "key", "q": "query", "o": "out"}, ("k", "v"), True),
)  # fmt: skip
