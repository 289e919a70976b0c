"""Correct ports as two scripts, each recorded by itself: what passes has no doubt, however small or plain it is."""

from __future__ import annotations

from typing import Any

COMMON = """
import json, sys
import numpy as np
given = {"model": "mlp", "optimizer": "sgd", "schedule": "none", "loss": "ce", "steps": 3, "clip": 0.0, "decay": 0.0,
         "lr": 0.1, "seed": 0, "rows": 8, "train": True, "mode": "train", "accumulate": 1, **json.loads(sys.argv[1])}
weights = np.random.default_rng(given["seed"])
def weight(*size):
    if given["model"] == "round":
        return weights.integers(-2, 3, size).astype("float32")
    return (weights.standard_normal(size) / max(1, size[-1]) ** 0.5).astype("float32")
def batch(step):
    rng = np.random.default_rng(1000 * given["seed"] + step + 1)
    rows = given["rows"]
    if given["model"] == "words":
        x = rng.integers(0, 11, (rows, 5))
    elif given["model"] == "images":
        x = rng.standard_normal((rows, 3, 8, 8)).astype("float32")
    elif given["model"] == "series":
        x = rng.standard_normal((rows, 5, 6)).astype("float32")
    elif given["model"] == "round":
        x = rng.integers(-3, 4, (rows, 6)).astype("float32")
    else:
        x = rng.standard_normal((rows, 6)).astype("float32")
    y = rng.integers(0, 3, rows) if given["loss"] == "ce" else rng.random((rows, 3)).round().astype("float32")
    return x, y, (rng.random((rows, 8)) > 0.3).astype("float32") / np.float32(0.7)
rates = {"none": lambda step: 1.0, "step": lambda step: 0.1 ** (step // 2), "warm": lambda step: (step + 1) / 4,
         "cosine": lambda step: 0.5 * (1 + np.cos(np.pi * step / 6))}
"""
TORCH = (
    COMMON
    + """
import torch
from torch import nn
F = nn.functional
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        kind = given["model"]
        if kind == "images":
            self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.pool, self.fc = nn.MaxPool2d(2), nn.Linear(64, 3)
        elif kind == "words":
            self.embed, self.one = nn.Embedding(11, 8), nn.Linear(8, 8)
            self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 3)
        elif kind == "series":
            self.rnn, self.fc = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)
        elif kind in ("linear", "round"):
            self.fc = nn.Linear(6, 3)
        else:
            self.one, self.fc = nn.Linear(6, 8), nn.Linear(8, 3)
    def forward(self, x, mask):
        kind = given["model"]
        if kind == "images":
            return self.fc(self.pool(F.relu(self.norm(self.conv(x)))).flatten(1))
        if kind == "words":
            h = self.norm(self.embed(x))
            h = torch.softmax(h @ self.one(h).transpose(1, 2), -1) @ h
            return self.fc(F.gelu(h.mean(1)))
        if kind == "series":
            return self.fc(self.rnn(x)[0][:, -1])
        if kind in ("linear", "round"):
            return self.fc(x)
        h = self.one(x)
        h = {"mlp": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "masked": F.relu}[kind](h)
        return self.fc(h * mask if kind == "masked" else h)
net = Net()
with torch.no_grad():
    for name, p in net.named_parameters():
        if "norm" not in name:
            p.copy_(torch.tensor(weight(*p.shape)))
getattr(net, given["mode"])()
made = {"sgd": lambda p: torch.optim.SGD(p, given["lr"], weight_decay=given["decay"]),
        "momentum": lambda p: torch.optim.SGD(p, given["lr"], momentum=0.9, weight_decay=given["decay"]),
        "adam": lambda p: torch.optim.Adam(p, given["lr"] / 10),
        "adamw": lambda p: torch.optim.AdamW(p, given["lr"] / 10, weight_decay=given["decay"])}
opt = made[given["optimizer"]](net.parameters())
sched = torch.optim.lr_scheduler.LambdaLR(opt, rates[given["schedule"]])
losses = {"ce": F.cross_entropy, "mse": F.mse_loss, "bce": F.binary_cross_entropy_with_logits}
for step in range(given["steps"]):
    for part in range(given["accumulate"]):
        x, y, mask = batch(step * given["accumulate"] + part)
        x, y, mask = torch.tensor(x), torch.tensor(y), torch.tensor(mask)
        if not given["train"]:
            with torch.no_grad():
                net(x, mask)
            continue
        out = net(x, mask)
        loss = losses[given["loss"]](out, y)
        loss.backward()
    if given["train"]:
        if given["clip"]:
            torch.nn.utils.clip_grad_norm_(net.parameters(), given["clip"])
        opt.step(); opt.zero_grad(); sched.step()
"""
)
PADDLE = (
    COMMON
    + """
import paddle
from paddle import nn
F = nn.functional
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        kind = given["model"]
        if kind == "images":
            self.conv, self.norm = nn.Conv2D(3, 4, 3, padding=1), nn.BatchNorm2D(4)
            self.pool, self.fc = nn.MaxPool2D(2), nn.Linear(64, 3)
        elif kind == "words":
            self.embed, self.one = nn.Embedding(11, 8), nn.Linear(8, 8)
            self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 3)
        elif kind == "series":
            self.rnn, self.fc = nn.LSTM(6, 8), nn.Linear(8, 3)
        elif kind in ("linear", "round"):
            self.fc = nn.Linear(6, 3)
        else:
            self.one, self.fc = nn.Linear(6, 8), nn.Linear(8, 3)
    def forward(self, x, mask):
        kind = given["model"]
        if kind == "images":
            return self.fc(self.pool(F.relu(self.norm(self.conv(x)))).flatten(1))
        if kind == "words":
            h = self.norm(self.embed(x))
            h = F.softmax(h @ self.one(h).transpose([0, 2, 1]), -1) @ h
            return self.fc(F.gelu(h.mean(1)))
        if kind == "series":
            return self.fc(self.rnn(x)[0][:, -1])
        if kind in ("linear", "round"):
            return self.fc(x)
        h = self.one(x)
        h = {"mlp": F.relu, "tanh": paddle.tanh, "sigmoid": F.sigmoid, "masked": F.relu}[kind](h)
        return self.fc(h * mask if kind == "masked" else h)
net = Net()
for name, p in net.named_parameters():
    if "norm" not in name:
        flat = name.endswith("weight") and ("fc" in name or "one" in name)
        value = weight(*(reversed(p.shape) if flat else p.shape))
        p.set_value(value.T if flat else value)
getattr(net, given["mode"])()
rate = given["lr"] / (10 if "adam" in given["optimizer"] else 1)
sched = paddle.optimizer.lr.LambdaDecay(rate, rates[given["schedule"]])
more = {"parameters": net.parameters(), "grad_clip": nn.ClipGradByGlobalNorm(given["clip"]) if given["clip"] else None}
decay = given["decay"] or None
opt = {"sgd": lambda: paddle.optimizer.SGD(sched, weight_decay=decay, **more),
       "momentum": lambda: paddle.optimizer.Momentum(sched, 0.9, weight_decay=decay, **more),
       "adam": lambda: paddle.optimizer.Adam(sched, **more),
       "adamw": lambda: paddle.optimizer.AdamW(sched, weight_decay=given["decay"], **more)}[given["optimizer"]]()
losses = {"ce": F.cross_entropy, "mse": F.mse_loss, "bce": F.binary_cross_entropy_with_logits}
for step in range(given["steps"]):
    for part in range(given["accumulate"]):
        x, y, mask = (paddle.to_tensor(one) for one in batch(step * given["accumulate"] + part))
        if not given["train"]:
            with paddle.no_grad():
                net(x, mask)
            continue
        out = net(x, mask)
        y = y if given["loss"] == "ce" else y.astype(out.dtype)
        loss = losses[given["loss"]](out, y)
        loss.backward()
    if given["train"]:
        opt.step(); opt.clear_grad(); sched.step()
"""
)
SCRIPTS = {"torch": TORCH, "paddle": PADDLE}

RIGHT: dict[str, dict[str, Any]] = {
    "one layer": {"model": "linear"},
    "one layer, one step": {"model": "linear", "steps": 1},
    "one layer, one row": {"model": "linear", "rows": 1},
    "one layer of whole numbers": {"model": "round", "loss": "mse", "lr": 0.125},
    "one layer of whole numbers, no training": {"model": "round", "train": False},
    "relu": {"model": "mlp"},
    "relu, another start": {"model": "mlp", "seed": 3},
    "relu, eight steps": {"model": "mlp", "steps": 8},
    "tanh, mean of squares": {"model": "tanh", "loss": "mse"},
    "sigmoid, two classes": {"model": "sigmoid", "loss": "bce"},
    "a dropout whose masks are shared": {"model": "masked"},
    "shared masks, Adam": {"model": "masked", "optimizer": "adam", "steps": 5},
    "momentum": {"model": "mlp", "optimizer": "momentum", "steps": 5},
    "momentum and decay": {"model": "mlp", "optimizer": "momentum", "decay": 1e-4},
    "Adam": {"model": "mlp", "optimizer": "adam", "steps": 5},
    "AdamW": {"model": "tanh", "optimizer": "adamw", "decay": 1e-2, "steps": 5},
    "steps in the schedule": {"model": "mlp", "schedule": "step", "steps": 6},
    "warm-up": {"model": "tanh", "schedule": "warm", "steps": 6},
    "cosine": {"model": "mlp", "schedule": "cosine", "steps": 6, "optimizer": "momentum"},
    "cosine, AdamW": {"model": "words", "schedule": "cosine", "optimizer": "adamw", "decay": 0.01, "steps": 4},
    "clipped gradients": {"model": "mlp", "clip": 0.05},
    "clipped gradients, Adam": {"model": "tanh", "clip": 0.05, "optimizer": "adam"},
    "a convolution with batch norm": {"model": "images", "mode": "eval"},
    "a convolution in evaluation": {"model": "images", "mode": "eval", "train": False},
    "words and attention": {"model": "words"},
    "words and attention, Adam": {"model": "words", "optimizer": "adam", "steps": 4},
    "words, no training": {"model": "words", "train": False},
    "a recurrent layer": {"model": "series"},
    "a recurrent layer, momentum": {"model": "series", "optimizer": "momentum", "steps": 4},
    "two batches to a step": {"model": "mlp", "accumulate": 2},
    "a small learning rate": {"model": "mlp", "lr": 1e-6, "steps": 4},
    "a large learning rate": {"model": "tanh", "lr": 1.0, "steps": 4},
}
