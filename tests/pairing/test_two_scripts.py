"""Two scripts, recorded in both precisions and compared without their models: other formulations pass, mistakes fail.

Each row is a model written twice, for torch and for paddle, cut into layers in two ways. `w(name, shape)` gives both
scripts the same weights.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reprod_log.cli import NOT_PROVEN, run

WEIGHTS = """
import zlib
import numpy as np

def w(name, *shape):
    made = np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape)
    return (made / np.sqrt(max(shape[-1], 1))).astype("float32") * 0.8

def x(*shape):
    return w("data", *shape) * 2
"""
TORCH = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from made_weights import *

def put(tensor, array):
    with torch.no_grad():
        tensor.copy_(torch.tensor(array))

def linear(name, n, m, bias=True):
    made = nn.Linear(n, m, bias=bias)
    put(made.weight, w(name, m, n))
    if bias:
        put(made.bias, w(name + ".bias", m))
    return made

def conv(name, n, m, k, **more):
    made = nn.Conv2d(n, m, k, **more)
    put(made.weight, w(name, m, n, k, k)); put(made.bias, w(name + ".bias", m))
    return made
{model}
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(2):
    given = torch.tensor({data})
    out = net(given)
    out = next(iter(out.values())) if isinstance(out, dict) else out[0] if isinstance(out, tuple) else out
    loss = out.square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""
PADDLE = """
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
from made_weights import *

def put(tensor, array):
    tensor.set_value(array)

def param(layer, array):
    made = layer.create_parameter(array.shape)
    made.set_value(array)
    return made

def linear(name, n, m, bias=True):
    made = nn.Linear(n, m, bias_attr=None if bias else False)
    put(made.weight, w(name, m, n).T)
    if bias:
        put(made.bias, w(name + ".bias", m))
    return made

def conv(name, n, m, k, **more):
    made = nn.Conv2D(n, m, k, **more)
    put(made.weight, w(name, m, n, k, k)); put(made.bias, w(name + ".bias", m))
    return made
{model}
net = Net()
opt = paddle.optimizer.SGD(0.05, parameters=net.parameters())
for _ in range(2):
    given = paddle.to_tensor({data})
    out = net(given)
    out = next(iter(out.values())) if isinstance(out, dict) else out[0] if isinstance(out, tuple) else out
    loss = out.square().mean()
    loss.backward(); opt.step(); opt.clear_grad()
"""
DRIVER = """
import json, sys
from reprod_log.cli import NOT_PROVEN, run
codes = []
for command in json.loads(sys.argv[1]):
    sys.modules.pop("made_weights", None)
    codes.append(run(command))
sys.exit(max(codes))
"""


def net(module: str, made: str, forward: str, more: str = "") -> str:
    """A model of one class: what it makes, and what it does with x."""
    body = "".join(f"\n        {line}" for line in made.strip().split("; "))
    steps = "".join(f"\n        {line}" for line in forward.strip().split("; "))
    return (
        f"{more}\nclass Net(nn.{module}):\n    def __init__(self):\n        super().__init__(){body}\n"
        f"    def forward(self, x):{steps}\n"
    )


@dataclass(frozen=True)
class Port:
    """What both sides make and do, in which mistakes the port must be caught, and where."""

    data: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    mistake: tuple[str, str] | None = None
    """A text of the port and the wrong one in its place."""
    place: str = ""
    """What the first divergence must name."""
    trains: bool = True
    asks: str = ""
    """Sides that ask for the gradient of their data."""
    loops: tuple[str, str] | None = None
    """What both sides do with their model."""


ASKING = {"torch": "given.requires_grad_()", "paddle": "given.stop_gradient = False"}
HEADS = "lambda t: t.reshape((2, 5, 2, 4)).transpose({axes})"
ATTENTION = "a = F.softmax(q @ k.transpose({last}) / 2.0, {axis}); y = (a @ v).transpose({axes}).reshape((2, 5, 8)); "
PORTS = {
    "padding outside": Port(
        "x(2, 3, 6, 6)",
        ("self.a = conv('a', 3, 4, 3); self.b = conv('b', 4, 5, 3); self.out = linear('out', 5, 2)",
         "x = F.relu(self.a(F.pad(x, (1, 1, 1, 1)))); x = F.relu(self.b(x)); return self.out(x.mean((2, 3)))"),
        ("self.a = conv('a', 3, 4, 3, padding=1); self.b = conv('b', 4, 5, 3); self.out = linear('out', 5, 2)",
         "x = F.relu(self.a(x)); x = F.relu(self.b(x)); return self.out(x.mean((2, 3)))"),
        ("F.relu(self.b(x))", "F.gelu(self.b(x))"), "out",
    ),
    "packed qkv": Port(
        "x(2, 5, 8)",
        ("self.q = linear('q', 8, 8); self.k = linear('k', 8, 8); self.v = linear('v', 8, 8); "
         "self.o = linear('o', 8, 8)",
         f"s = {HEADS.format(axes='1, 2')}; q, k, v = s(self.q(x)), s(self.k(x)), s(self.v(x)); "
         + ATTENTION.format(last="-2, -1", axis="-1", axes="1, 2") + "return self.o(y)"),
        ("self.qkv = nn.Linear(8, 24); put(self.qkv.weight, np.concatenate([w(n, 8, 8).T for n in 'qkv'], 1)); "
         "put(self.qkv.bias, np.concatenate([w(n + '.bias', 8) for n in 'qkv'])); self.o = linear('o', 8, 8)",
         f"s = {HEADS.format(axes='[0, 2, 1, 3]')}; q, k, v = map(s, self.qkv(x).split(3, -1)); "
         + ATTENTION.format(last="[0, 1, 3, 2]", axis="-1", axes="[0, 2, 1, 3]") + "return self.o(y)"),
        ("/ 2.0", "/ 2.1"), "o",
    ),
    "results in a dict": Port(
        "x(4, 6)",
        ("self.a = linear('a', 6, 5); self.b = linear('b', 5, 3)",
         "h = torch.tanh(self.a(x)); return {'scores': self.b(h), 'hidden': h}"),
        ("self.a = linear('a', 6, 5); self.b = linear('b', 5, 3)", "h = F.tanh(self.a(x)); return self.b(h), h"),
    ),
    "one activation called twice": Port(
        "x(4, 6)",
        ("self.a = linear('a', 6, 5); self.b = linear('b', 5, 3); self.act = nn.GELU()",
         "return self.act(self.b(self.act(self.a(x))))"),
        ("self.a = linear('a', 6, 5); self.g1 = nn.GELU(); self.b = linear('b', 5, 3); self.g2 = nn.GELU()",
         "return self.g2(self.b(self.g1(self.a(x))))"),
        ("self.g1(self.a(x))", "F.relu(self.a(x))"), "b",
    ),
    "norm written by hand": Port(
        "x(4, 6)",
        ("self.a = linear('a', 6, 5); self.n = nn.LayerNorm(5); self.b = linear('b', 5, 3); "
         "put(self.n.weight, 1 + w('g', 5)); put(self.n.bias, w('s', 5))",
         "return self.b(self.n(self.a(x)))"),
        ("self.a = linear('a', 6, 5); self.n = Norm(); self.b = linear('b', 5, 3)", "return self.b(self.n(self.a(x)))",
         "class Norm(nn.Layer):\n    def __init__(self):\n        super().__init__()\n"
         "        self.gamma, self.beta = param(self, 1 + w('g', 5)), param(self, w('s', 5))\n"
         "    def forward(self, x):\n        m = x.mean(-1, keepdim=True)\n"
         "        v = ((x - m) ** 2).mean(-1, keepdim=True)\n"
         "        return (x - m) / (v + 1e-5).sqrt() * self.gamma + self.beta\n"),
        ("(v + 1e-5).sqrt()", "(v + 1e-3).sqrt()"), "n",
    ),
    "nested otherwise": Port(
        "x(4, 6)",
        ("self.body = nn.Sequential(linear('a', 6, 5), nn.Tanh(), linear('b', 5, 5), nn.Tanh()); "
         "self.head = linear('c', 5, 3)", "return self.head(self.body(x))"),
        ("self.first = nn.Sequential(linear('a', 6, 5), nn.Tanh()); "
         "self.rest = nn.Sequential(linear('b', 5, 5), nn.Tanh(), linear('c', 5, 3))",
         "return self.rest(self.first(x))"),
    ),
    "layers as functions": Port(
        "x(4, 6)",
        ("self.a = linear('a', 6, 5); self.b = linear('b', 5, 3)", "return self.b(torch.relu(self.a(x)))"),
        ("self.w1 = param(self, w('a', 5, 6)); self.b1 = param(self, w('a.bias', 5)); "
         "self.w2 = param(self, w('b', 3, 5)); self.b2 = param(self, w('b.bias', 3))",
         "h = F.relu(x @ self.w1.t() + self.b1); return h @ self.w2.t() + self.b2"),
    ),
    "1x1 convolution against linear": Port(
        "x(2, 3, 4, 4)",
        ("self.a = conv('a', 3, 4, 1); self.b = conv('b', 4, 2, 3)", "return self.b(torch.relu(self.a(x)))"),
        ("self.a = nn.Linear(3, 4); put(self.a.weight, w('a', 4, 3, 1, 1)[:, :, 0, 0].T); "
         "put(self.a.bias, w('a.bias', 4)); self.b = conv('b', 4, 2, 3)",
         "x = F.relu(self.a(x.transpose([0, 2, 3, 1]))); return self.b(x.transpose([0, 3, 1, 2]))"),
    ),
    "branches called in the other order": Port(
        "x(4, 6)",
        ("self.up = linear('u', 6, 6); self.gate = linear('g', 6, 6); self.down = linear('d', 6, 6)",
         "g = self.gate(x); return self.down(F.silu(g) * self.up(x))"),
        ("self.w3 = linear('u', 6, 6); self.w1 = linear('g', 6, 6); self.w2 = linear('d', 6, 6)",
         "u = self.w3(x); return self.w2(u * F.silu(self.w1(x)))"),
    ),
    "a tail outside of its block": Port(
        "x(4, 6)",
        ("self.blocks = nn.ModuleList([Block(n) for n in 'abc'])",
         "for one in self.blocks: x = one(x); return x",
         "class Block(nn.Module):\n    def __init__(self, n):\n        super().__init__(); self.fc = linear(n, 6, 6)\n"
         "    def forward(self, x):\n        return torch.tanh(self.fc(x)) * 0.9\n"),
        ("self.blocks = nn.LayerList([Block(n) for n in 'abc'])",
         "for one in self.blocks: x = one(x) * 0.9; return x",
         "class Block(nn.Layer):\n    def __init__(self, n):\n        super().__init__(); self.fc = linear(n, 6, 6)\n"
         "    def forward(self, x):\n        return F.tanh(self.fc(x))\n"),
        ("F.tanh(self.fc(x))", "F.tanh(self.fc(x)) + (0.01 if self.fc.weight[0, 0] == w('b', 6, 6)[0, 0] else 0.0)"),
        "blocks.1",
    ),
    "chomped convolution": Port(
        "x(2, 3, 7)",
        ("self.a = nn.Conv1d(3, 4, 3, padding=2); self.b = nn.Conv1d(4, 2, 3, padding=2); "
         "put(self.a.weight, w('a', 4, 3, 3)); put(self.a.bias, w('ab', 4)); put(self.b.weight, w('b', 2, 4, 3)); "
         "put(self.b.bias, w('bb', 2))",
         "x = torch.relu(self.a(x)[:, :, :-2]); return self.b(x)[:, :, :-2]"),
        ("self.a = nn.Conv1D(3, 4, 3); self.b = nn.Conv1D(4, 2, 3); "
         "put(self.a.weight, w('a', 4, 3, 3)); put(self.a.bias, w('ab', 4)); put(self.b.weight, w('b', 2, 4, 3)); "
         "put(self.b.bias, w('bb', 2))",
         "x = F.relu(self.a(F.pad(x, [2, 0], data_format='NCL'))); return self.b(F.pad(x, [2, 0], data_format='NCL'))"),
    ),
    "rows in one call": Port(
        "x(2, 4, 6)",
        ("self.enc = linear('e', 6, 5); self.out = linear('o', 10, 3)",
         "return self.out(torch.cat([self.enc(x[0]), self.enc(x[1])], -1))"),
        ("self.enc = linear('e', 6, 5); self.out = linear('o', 10, 3)",
         "a, b = self.enc(x.reshape((8, 6))).split(2, 0); return self.out(paddle.concat([a, b], -1))"),
    ),
    "heads interleaved": Port(
        "x(2, 5, 8)",
        ("self.q = linear('q', 8, 8); self.k = linear('k', 8, 8); self.v = linear('v', 8, 8); "
         "self.o = linear('o', 8, 8)",
         f"s = {HEADS.format(axes='1, 2')}; q, k, v = s(self.q(x)), s(self.k(x)), s(self.v(x)); "
         + ATTENTION.format(last="-2, -1", axis="-1", axes="1, 2") + "return self.o(y)"),
        ("self.qkv = nn.Linear(8, 24); "
         "put(self.qkv.weight, np.stack([w(n, 8, 8).reshape(2, 4, 8) for n in 'qkv'], 1).reshape(24, 8).T); "
         "put(self.qkv.bias, np.stack([w(n + '.bias', 8).reshape(2, 4) for n in 'qkv'], 1).reshape(24)); "
         "self.o = linear('o', 8, 8)",
         "q, k, v = self.qkv(x).reshape((2, 5, 2, 12)).transpose([0, 2, 1, 3]).split(3, -1); "
         + ATTENTION.format(last="[0, 1, 3, 2]", axis="-1", axes="[0, 2, 1, 3]") + "return self.o(y)"),
        ("return self.o(y)", "return self.o(y * 1.01)"), "o",
    ),
    "modules registered the other way round": Port(
        "x(4, 6)",
        ("self.t0 = linear('a', 6, 6); self.t1 = linear('b', 6, 6); self.t2 = linear('c', 6, 6)",
         "return self.t2(torch.tanh(self.t1(torch.tanh(self.t0(x)))))"),
        ("self.s2 = linear('a', 6, 6); self.s1 = linear('b', 6, 6); self.s0 = linear('c', 6, 6)",
         "return self.s0(F.tanh(self.s1(F.tanh(self.s2(x)))))"),
        ("self.s1(F.tanh(self.s2(x)))", "self.s1(F.relu(self.s2(x)))"), "t1",
    ),
    "a recurrent layer against its cell": Port(
        "x(3, 5, 4)",
        ("self.r = nn.LSTM(4, 6, batch_first=True); put(self.r.weight_ih_l0, w('ih', 24, 4)); "
         "put(self.r.weight_hh_l0, w('hh', 24, 6)); put(self.r.bias_ih_l0, w('bi', 24)); "
         "put(self.r.bias_hh_l0, w('bh', 24)); self.o = linear('o', 6, 2)",
         "y, (h, c) = self.r(x); return self.o(h[0])"),
        ("self.cell = nn.LSTMCell(4, 6); put(self.cell.weight_ih, w('ih', 24, 4)); "
         "put(self.cell.weight_hh, w('hh', 24, 6)); put(self.cell.bias_ih, w('bi', 24)); "
         "put(self.cell.bias_hh, w('bh', 24)); self.o = linear('o', 6, 2)",
         "s = (paddle.zeros([3, 6], dtype=x.dtype), paddle.zeros([3, 6], dtype=x.dtype)); "
         "y, s = self.cell(x[:, 0], s); y, s = self.cell(x[:, 1], s); y, s = self.cell(x[:, 2], s); "
         "y, s = self.cell(x[:, 3], s); y, s = self.cell(x[:, 4], s); return self.o(y)"),
        ("y, s = self.cell(x[:, 2], s)", "y, s = self.cell(x[:, 2], (s[0], s[1].detach()))"), "r.weight_ih_l0",
    ),
    "a convolution against rows of patches, without training": Port(
        "x(2, 3, 8, 8)",
        ("self.p = conv('p', 3, 6, 4, stride=4); put(self.p.bias, np.zeros(6, 'float32')); self.o = linear('o', 6, 3)",
         "return self.o(self.p(x).flatten(2).transpose(1, 2).mean(1))"),
        ("self.p = nn.Linear(48, 6); put(self.p.weight, w('p', 6, 3, 4, 4).reshape(6, 48).T); "
         "put(self.p.bias, np.zeros(6, 'float32')); self.o = linear('o', 6, 3)",
         "x = x.reshape((2, 3, 2, 4, 2, 4)).transpose([0, 2, 4, 1, 3, 5]).reshape((2, 4, 48)); "
         "return self.o(self.p(x).mean(1))"),
        ("self.p(x).mean(1)", "self.p(x).max(1)"), "o", trains=False,
    ),
    "zeros in one vector and in three, without training": Port(
        "x(2, 5, 8)",
        ("self.q = linear('q', 8, 8); self.k = linear('k', 8, 8); self.v = linear('v', 8, 8); "
         "self.o = linear('o', 8, 8); [put(m.bias, np.zeros(8, 'float32')) for m in (self.q, self.k, self.v, self.o)]",
         "return self.o(F.softmax(self.q(x) @ self.k(x).transpose(1, 2), -1) @ self.v(x))"),
        ("self.qkv = nn.Linear(8, 24); put(self.qkv.weight, np.concatenate([w(n, 8, 8).T for n in 'qkv'], 1)); "
         "put(self.qkv.bias, np.zeros(24, 'float32')); self.o = linear('o', 8, 8); "
         "put(self.o.bias, np.zeros(8, 'float32'))",
         "q, k, v = self.qkv(x).split(3, -1); return self.o(F.softmax(q @ k.transpose([0, 2, 1]), -1) @ v)"),
        ("k.transpose([0, 2, 1])", "k.transpose([0, 2, 1]) * 1.01"), "o", trains=False,
    ),
    "a tensor that a framework makes a buffer": Port(
        "x(8, 6)",
        ("self.a = linear('a', 6, 6); self.p = linear('p', 6, 4); self.b = linear('b', 6, 3)",
         "h = torch.tanh(self.a(x)); self.kept = self.p(h); return self.b(h)"),
        ("self.a = linear('a', 6, 6); self.p = linear('p', 6, 4); self.b = linear('b', 6, 3)",
         "h = F.tanh(self.a(x)); self.kept = self.p(h); return self.b(h)"),
        ("self.p(h)", "self.p(h * 1.01)"), "p",
    ),
    "gradients that nobody uses": Port(
        "x(8, 6)",
        ("self.a = linear('a', 6, 6); self.b = linear('b', 6, 3)", "return self.b(torch.tanh(self.a(x)))"),
        ("self.a = linear('a', 6, 6); self.b = linear('b', 6, 3)", "return self.b(F.tanh(self.a(x)))"),
        ("og.clear_grad(); od.clear_grad()", "og.clear_grad()"), "critic.2.bias",
        loops=(
            """
critic = nn.Sequential(linear("d1", 3, 4), nn.LeakyReLU(0.2), linear("d2", 4, 1))
og = torch.optim.SGD(net.parameters(), lr=0.05)
od = torch.optim.SGD(critic.parameters(), lr=0.05)
for _ in range(2):
    fake = net(torch.tensor({data})); real = torch.tensor(w("real", 8, 3))
    loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
    od.zero_grad(); loss.backward(); od.step()
    loss = F.softplus(-critic(fake)).mean(); og.zero_grad(); loss.backward(); og.step()
""",
            """
critic = nn.Sequential(linear("d1", 3, 4), nn.LeakyReLU(0.2), linear("d2", 4, 1))
og = paddle.optimizer.SGD(0.05, parameters=net.parameters())
od = paddle.optimizer.SGD(0.05, parameters=critic.parameters())
for _ in range(2):
    fake = net(paddle.to_tensor({data})); real = paddle.to_tensor(w("real", 8, 3))
    loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
    loss.backward(); od.step(); od.clear_grad()
    loss = F.softplus(-critic(fake)).mean(); loss.backward(); og.step(); og.clear_grad(); od.clear_grad()
""",
        ),
    ),
}  # fmt: skip
PORTS["the gradient of the data is asked for"] = Port(
    "x(8, 6)",
    ("self.a = linear('a', 6, 6); self.b = linear('b', 6, 3)", "return self.b(self.a(x * x.sigmoid()))"),
    ("self.a = linear('a', 6, 6); self.b = linear('b', 6, 3)", "return self.b(self.a(x * F.sigmoid(x)))"),
    ("F.sigmoid(x)", "F.sigmoid(x).detach()"), "", asks="torch and paddle",
)  # fmt: skip
PORTS["the gradient of the data is asked for by one side"] = replace(
    PORTS["the gradient of the data is asked for"], mistake=None, asks="torch"
)
_UNUSED = PORTS["gradients that nobody uses"]
assert _UNUSED.loops is not None
PORTS["a critic that is frozen while the generator is trained"] = replace(
    _UNUSED,
    mistake=("fake.detach()", "fake.detach() * 1.01"),
    place="critic",
    loops=(
        _UNUSED.loops[0].replace(
            "    loss = F.softplus(-critic(fake)).mean()",
            "    critic.requires_grad_(False); loss = F.softplus(-critic(fake)).mean()",
        )
        + "    critic.requires_grad_(True)\n",
        _UNUSED.loops[1],
    ),
)
_PATCHES = PORTS["a convolution against rows of patches, without training"]
PORTS["fewer rows in a later step"] = replace(
    _PATCHES,
    trains=True,
    loops=(
        "\nfor rows in (2, 1):\n    net(torch.tensor({data}[:rows])).sum().backward()\n",
        "\nfor rows in (2, 1):\n    net(paddle.to_tensor({data}[:rows])).sum().backward()\n",
    ),
    theirs=(_PATCHES.theirs[0], _PATCHES.theirs[1].replace("reshape((2,", "reshape((-1,")),
)
CROSSED = Port(
    "x(4, 6)",
    ("self.gate_proj = linear('g', 6, 6); self.up_proj = linear('u', 6, 6); self.down = linear('d', 6, 6)",
     "return self.down(F.silu(self.gate_proj(x)) * self.up_proj(x))"),
    ("self.gate = linear('u', 6, 6); self.up = linear('g', 6, 6); self.down = linear('d', 6, 6)",
     "return self.down(self.gate(x) * F.silu(self.up(x)))"),
)  # fmt: skip
"""Loaded crosswise until it fits: a checkpoint loaded by name would be wrong."""
SMALL_SCALE = Port(
    "x(4, 6)",
    ("self.a = linear('a', 6, 6); self.act = nn.GELU(); self.out = linear('o', 6, 3)",
     "return self.out(x + 1e-9 * self.act(self.a(x)))"),
    ("self.a = linear('a', 6, 6); self.act = nn.GELU(approximate=True); self.out = linear('o', 6, 3)",
     "return self.out(x + 1e-9 * self.act(self.a(x)))"),
)  # fmt: skip
"""A mistake that is scaled away: all results agree."""
TWO = "self.a = linear('a', 6, 6); self.b = linear('b', 6, 3)"
ASIDE = TWO + "; self.p = linear('p', 6, 4)"
EXPERTS = (
    "self.r = linear('r', 6, 2); self.s = linear('s', 6, 5); self.t = linear('t', 6, 5); self.o = linear('o', 5, 2)"
)
HIDDEN = {
    "only classes are returned": Port(
        "x(8, 6)", (TWO, "return self.b(F.gelu(self.a(x))).argmax(-1)"),
        (TWO, "return self.b(F.gelu(self.a(x)) * 1.01).argmax(-1)"), trains=False,
    ),
    "the last layer is zero": Port(
        "x(8, 6)", (TWO + "; put(self.b.weight, np.zeros((3, 6), 'float32'))", "return self.b(F.gelu(self.a(x)))"),
        (TWO + "; put(self.b.weight, np.zeros((6, 3), 'float32'))", "return self.b(F.relu(self.a(x)))"), trains=False,
    ),
    "the branch is scaled away": Port(
        "x(8, 6)", (TWO + "; self.c = linear('c', 6, 6)", "return self.b(x + 1e-7 * self.c(F.gelu(self.a(x))))"),
        (TWO + "; self.c = linear('c', 6, 6)", "return self.b(x + 1e-7 * self.c(F.relu(self.a(x))))"), trains=False,
    ),
    "a result is kept aside": Port(
        "x(8, 6)", (ASIDE, "h = torch.tanh(self.a(x)); self.kept = [self.p(h)]; return self.b(h)"),
        (ASIDE, "h = F.tanh(self.a(x)); self.kept = [self.p(h * 1.01)]; return self.b(h)"),
    ),
    "a router is only asked for the largest": Port(
        "x(8, 6)",
        (EXPERTS, "k = self.r(F.gelu(x)).argmax(-1)[:, None]; "
         "return self.o(torch.where(k > 0, self.s(x), self.t(x)))"),
        (EXPERTS, "k = self.r(F.gelu(x) * 1.01).argmax(-1).unsqueeze(1); "
         "return self.o(paddle.where(k > 0, self.s(x), self.t(x)))"),
    ),
    "a bias of zeros belongs to another layer": Port(
        "x(8, 6)", ("self.a = linear('a', 6, 6); put(self.a.bias, np.zeros(6, 'float32')); "
         "self.b = linear('b', 6, 6, bias=False)", "return self.b(F.gelu(self.a(x)))"),
        ("self.a = linear('a', 6, 6, bias=False); self.b = linear('b', 6, 6); "
         "put(self.b.bias, np.zeros(6, 'float32'))", "return self.b(F.gelu(self.a(x)))"), trains=False,
    ),
    "the scale of a norm belongs to another one": Port(
        "x(8, 6)", (TWO + "; self.n = nn.LayerNorm(6); self.m = nn.LayerNorm(6, elementwise_affine=False)",
         "return self.b(self.m(F.gelu(self.a(self.n(x)))))"),
        (TWO + "; self.n = nn.LayerNorm(6, weight_attr=False, bias_attr=False); self.m = nn.LayerNorm(6)",
         "return self.b(self.m(F.gelu(self.a(self.n(x)))))"), trains=False,
    ),
    "a memory is lost": Port(
        "x(8, 6)", (TWO + "; self.register_buffer('bank', torch.zeros(8, 6))",
         "h = self.a(x); self.bank = h.detach(); return self.b(F.gelu(h))"),
        (TWO, "h = self.a(x); return self.b(F.gelu(h))"),
    ),
}  # fmt: skip
"""Wrong ports whose mistake no gradient and no result shows."""
OTHERS = {
    "crossed": CROSSED,
    "scaled": SMALL_SCALE,
    **{f"hidden{place}": one for place, one in enumerate(HIDDEN.values())},
}
WRONG = [name for name, port in PORTS.items() if port.mistake]


def scripts(port: Port) -> tuple[str, str]:
    ours, theirs = net("Module", *port.ours), net("Layer", *port.theirs)
    made = []
    for text, model, side, tensor in ((TORCH, ours, "torch", "tensor"), (PADDLE, theirs, "paddle", "to_tensor")):
        if port.loops is not None:
            text = text.partition("opt = ")[0] + port.loops[side == "paddle"]
        if side in port.asks:
            text = text.replace("    out = net(given)\n", f"    {ASKING[side]}\n    out = net(given)\n")
        if not port.trains:
            text = text.partition("opt = ")[0] + f"for _ in range(2):\n    net({side}.{tensor}({{data}}))\n"
        made.append(text.format(model=model, data=port.data))
    return made[0], made[1]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recordings of all scripts, each in both precisions."""
    place = tmp_path_factory.mktemp("scripts")
    (place / "made_weights.py").write_text(WEIGHTS)
    chosen: dict[str, list[str]] = {"torch": [], "paddle": []}
    for number, port in [*enumerate(PORTS.values()), *OTHERS.items()]:
        ours, theirs = scripts(port)
        (place / f"torch{number}.py").write_text(ours)
        (place / f"paddle{number}.py").write_text(theirs)
        chosen["torch"].append(f"torch{number}")
        chosen["paddle"].append(f"paddle{number}")
        if port.mistake is not None:
            assert port.mistake[0] in theirs
            (place / f"wrong{number}.py").write_text(theirs.replace(*port.mistake))
            chosen["paddle"].append(f"wrong{number}")
    for names in chosen.values():
        commands = [
            ["run", "-o", name, "--dtype", dtype, f"{name}.py"] for name in names for dtype in ("float32", "float64")
        ]
        answer = subprocess.run(
            [sys.executable, "-c", DRIVER, json.dumps(commands)],
            cwd=place,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
    return place


def compared(ours: Path, theirs: Path) -> tuple[int, str, dict[str, object]]:
    out = io.StringIO()
    report = theirs.with_suffix(".json")
    with redirect_stdout(out), redirect_stderr(out):
        code = run(["compare", str(ours), str(theirs), "--report", str(report)])
    return code, out.getvalue(), json.loads(report.read_text())


@pytest.mark.parametrize("name", list(PORTS))
def test_another_formulation_passes(name: str, recorded: Path) -> None:
    number = list(PORTS).index(name)
    code, text, found = compared(recorded / f"torch{number}", recorded / f"paddle{number}")
    assert code == 0, text
    assert not [one for one in found["findings"] if one["kind"] in ("cause", "hint")], text


@pytest.mark.parametrize("name", WRONG)
def test_mistake_in_another_formulation_is_found_and_placed(name: str, recorded: Path) -> None:
    number = list(PORTS).index(name)
    code, text, found = compared(recorded / f"torch{number}", recorded / f"wrong{number}")
    assert code == 1, text
    assert f"/{PORTS[name].place}" in re.split("[#:]", str(found["first_divergence"]))[0], text


def test_roles_that_are_exchanged_against_their_names_prove_nothing(recorded: Path) -> None:
    code, text, found = compared(recorded / "torchcrossed", recorded / "paddlecrossed")
    assert code == NOT_PROVEN, text
    assert found["findings"][0]["rule"] == "crossed_names", text


def test_wrong_layer_is_found_although_all_results_agree(recorded: Path) -> None:
    code, text, found = compared(recorded / "torchscaled", recorded / "paddlescaled")
    assert code == 1, text
    assert "/act#" in str(found["first_divergence"]), text


@pytest.mark.parametrize("name", HIDDEN)
def test_mistake_that_no_gradient_and_no_result_shows_is_found(name: str, recorded: Path) -> None:
    number = list(HIDDEN).index(name)
    code, text, _ = compared(recorded / f"torchhidden{number}", recorded / f"paddlehidden{number}")
    assert code == 1, text
