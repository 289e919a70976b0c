"""Programs for pairs built to pass wrongly: one small training, in torch and in paddle, with planted changes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from reprod_log.capture.script import run_script
from reprod_log.recording import Recording
from reprod_log.recording.program import FACT

COMMON = """
import json, sys
import numpy as np
given = {"eps": 1e-5, "scale": 1.0, "output": 1.0, "act": "tanh", "lr": 0.1, "momentum": 0.9, "decay": 0.0,
         "gamma": 0.9, "mean": True, "data": 0, "brightness": 1.0, "labels": 0, "bias": 1.0, "clip": 0.0, "steps": 3,
         "late": 0, "smooth": 0.0, **json.loads(sys.argv[1])}
rng = np.random.default_rng(7)
W1, B1, W2, B2 = (rng.normal(size=size).astype("float32") for size in ((8, 6), (8,), (3, 8), (3,)))
W1, B2 = (W1 * given["scale"]).astype("float32"), (B2 * given["bias"]).astype("float32")
def batch(step):
    fed = np.random.default_rng(100 * given["data"] + step + (50 if given["late"] and step else 0))
    x = (fed.normal(size=(16, 6)) * given["brightness"]).astype("float32")
    return x, (fed.integers(0, 3, size=16) + given["labels"]) % 3
"""
TORCH = (
    COMMON
    + """
import torch
act = {"tanh": torch.nn.Tanh, "gelu": torch.nn.GELU, "silu": torch.nn.SiLU}[given["act"]]
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm = torch.nn.Linear(6, 8), torch.nn.LayerNorm(8, eps=given["eps"])
        self.act, self.two = act(), torch.nn.Linear(8, 3)
    def forward(self, x):
        return self.two(self.act(self.norm(self.one(x)))) * given["output"]
net = Net()
with torch.no_grad():
    for layer, w, b in ((net.one, W1, B1), (net.two, W2, B2)):
        layer.weight.copy_(torch.tensor(w)); layer.bias.copy_(torch.tensor(b))
opt = torch.optim.SGD(net.parameters(), given["lr"], momentum=given["momentum"], weight_decay=given["decay"])
sched = torch.optim.lr_scheduler.ExponentialLR(opt, given["gamma"])
for step in range(given["steps"]):
    x, y = batch(step)
    loss = torch.nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(y), label_smoothing=given["smooth"],
                                             reduction="mean" if given["mean"] else "sum")
    opt.zero_grad(); loss.backward()
    if given["clip"]:
        torch.nn.utils.clip_grad_value_(net.parameters(), given["clip"])
    opt.step(); sched.step()
"""
)
PADDLE = (
    COMMON
    + """
import paddle
act = {"tanh": paddle.nn.Tanh, "gelu": paddle.nn.GELU, "silu": paddle.nn.Silu}[given["act"]]
class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.one, self.norm = paddle.nn.Linear(6, 8), paddle.nn.LayerNorm(8, epsilon=given["eps"])
        self.act, self.two = act(), paddle.nn.Linear(8, 3)
    def forward(self, x):
        return self.two(self.act(self.norm(self.one(x)))) * given["output"]
net = Net()
for layer, w, b in ((net.one, W1, B1), (net.two, W2, B2)):
    layer.weight.set_value(w.T); layer.bias.set_value(b)
sched = paddle.optimizer.lr.ExponentialDecay(given["lr"], given["gamma"])
opt = paddle.optimizer.Momentum(sched, given["momentum"], parameters=net.parameters(),
                                weight_decay=given["decay"] or None,
                                grad_clip=paddle.nn.ClipGradByValue(given["clip"]) if given["clip"] else None)
for step in range(given["steps"]):
    x, y = batch(step)
    loss = paddle.nn.functional.cross_entropy(net(paddle.to_tensor(x)), paddle.to_tensor(y),
                                              label_smoothing=given["smooth"],
                                              reduction="mean" if given["mean"] else "sum")
    loss.backward(); opt.step(); opt.clear_grad(); sched.step()
"""
)
SCRIPTS = {"torch": TORCH, "paddle": PADDLE}


def recorded(framework: str, wide: bool, scripts: Mapping[str, str] = SCRIPTS, **changes: Any) -> Recording:
    """One pass of the training with these changes, as `reprod run` records it."""
    return _recorded(framework, wide, scripts[framework], json.dumps(changes, sort_keys=True))


@cache
def _recorded(framework: str, wide: bool, text: str, changes: str) -> Recording:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / f"{framework}_train.py"
        script.write_text(text)
        return run_script(script, [changes], dtype="float64" if wide else None, run="float64" if wide else "")


def joined(plain: Recording | None, wide: Recording | None, *, programs: bool = False) -> Recording:
    """A recording of these passes, without a word on what they ran unless `programs` keeps it: numbers must tell."""
    passes = [one for one in (plain, wide) if one is not None]
    first = passes[0]
    known: dict[str, Any] = {run: program for one in passes for run, program in one.provenance.extra[FACT].items()}
    extra: Mapping[str, Any] = {**first.provenance.extra, FACT: known if programs else {}}
    entries = tuple(entry for one in passes for entry in one.entries)
    return replace(first, entries=entries, provenance=replace(first.provenance, extra=extra))
