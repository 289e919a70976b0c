"""A small Llama: RMS norm by hand, rotary halves, grouped queries, SwiGLU; AdamW in two groups, cosine with warm-up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from zoo.trial import Trial, arrays, with_weights

STEPS, WIDTH, HEADS, GROUPS, WORDS, LENGTH, IGNORED = 4, 16, 4, 2, 23, 6, -100
SIZE = WIDTH // HEADS


class TorchNorm(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = tnn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def torch_turned(x: Any) -> Any:
    angles = torch.arange(LENGTH, dtype=x.dtype)[:, None] / 100.0 ** (torch.arange(0, SIZE, 2, dtype=x.dtype) / SIZE)
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class TorchBlock(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = TorchNorm(), TorchNorm()
        self.q, self.o = tnn.Linear(WIDTH, WIDTH, bias=False), tnn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (tnn.Linear(WIDTH, GROUPS * SIZE, bias=False) for _ in range(2))
        self.gate, self.up = (tnn.Linear(WIDTH, 24, bias=False) for _ in range(2))
        self.down = tnn.Linear(24, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.norm1(x)
        q = torch_turned(self.q(y).unflatten(-1, (HEADS, SIZE)).transpose(1, 2))
        k = torch_turned(self.k(y).unflatten(-1, (GROUPS, SIZE)).transpose(1, 2))
        v = self.v(y).unflatten(-1, (GROUPS, SIZE)).transpose(1, 2)
        k, v = (one.repeat_interleave(HEADS // GROUPS, 1) for one in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(SIZE)
        scores = scores.masked_fill(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), -1e9)
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(TF.silu(self.gate(y)) * self.up(y))


class TorchLlama(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = tnn.Embedding(WORDS, WIDTH)
        self.blocks = tnn.ModuleList([TorchBlock(), TorchBlock()])
        self.norm, self.head = TorchNorm(), tnn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class PaddleNorm(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([WIDTH], default_initializer=pnn.initializer.Constant(1.0))

    def forward(self, x: Any) -> Any:
        square = x.pow(2).mean(-1, keepdim=True)
        return x * paddle.rsqrt(square + 1e-5) * self.weight


def paddle_turned(x: Any) -> Any:
    powers = 100.0 ** (paddle.arange(0, SIZE, 2).astype(x.dtype) / SIZE)
    angles = paddle.arange(LENGTH).astype(x.dtype).unsqueeze(-1) / powers
    cos = paddle.concat([angles.cos()] * 2, -1)
    sin = paddle.concat([angles.sin()] * 2, -1)
    left, right = x.chunk(2, -1)
    other = paddle.concat([-right, left], -1)
    return x * cos + other * sin


def repeated(x: Any) -> Any:
    return paddle.repeat_interleave(x, HEADS // GROUPS, 1)


class PaddleBlock(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = PaddleNorm(), PaddleNorm()
        self.q, self.o = pnn.Linear(WIDTH, WIDTH, bias_attr=False), pnn.Linear(WIDTH, WIDTH, bias_attr=False)
        self.k, self.v = (pnn.Linear(WIDTH, GROUPS * SIZE, bias_attr=False) for _ in range(2))
        self.gate, self.up = (pnn.Linear(WIDTH, 24, bias_attr=False) for _ in range(2))
        self.down = pnn.Linear(24, WIDTH, bias_attr=False)

    def forward(self, x: Any) -> Any:
        y = self.norm1(x)
        q = paddle_turned(self.q(y).reshape([*y.shape[:2], HEADS, SIZE]).transpose([0, 2, 1, 3]))
        k = paddle_turned(self.k(y).reshape([*y.shape[:2], GROUPS, SIZE]).transpose([0, 2, 1, 3]))
        v = self.v(y).reshape([*y.shape[:2], GROUPS, SIZE]).transpose([0, 2, 1, 3])
        k, v = repeated(k), repeated(v)
        scores = q @ k.transpose([0, 1, 3, 2])
        scores = scores / math.sqrt(SIZE)
        hidden = paddle.triu(paddle.ones([LENGTH, LENGTH]), 1).astype("bool")
        scores = paddle.where(hidden, paddle.full([], -1e9, scores.dtype), scores)
        chances = PF.softmax(scores, -1)
        mixed = (chances @ v).transpose([0, 2, 1, 3]).flatten(2)
        x = x + self.o(mixed)
        y = self.norm2(x)
        gated = PF.silu(self.gate(y)) * self.up(y)
        return x + self.down(gated)


class PaddleLlama(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words = pnn.Embedding(WORDS, WIDTH)
        self.blocks = pnn.LayerList([PaddleBlock(), PaddleBlock()])
        self.norm, self.head = PaddleNorm(), pnn.Linear(WIDTH, WORDS, bias_attr=False)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def torch_loss(outputs: Any, targets: Any) -> Any:
    return TF.cross_entropy(outputs[:, :-1].flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED)


def paddle_loss(outputs: Any, targets: Any) -> Any:
    logits, labels = outputs[:, :-1].flatten(0, 1), targets[:, 1:].flatten()
    total = PF.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return total / (labels != IGNORED).astype(total.dtype).sum()


def torch_optimizer(model: Any) -> Any:
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if "norm" not in n], "weight_decay": 0.1},
        {"params": [p for n, p in named if "norm" in n], "weight_decay": 0.0},
    ]
    made = torch.optim.AdamW(groups, lr=5e-3, betas=(0.9, 0.95), eps=1e-8)
    return made, torch.optim.lr_scheduler.LambdaLR(made, torch_rate)


def torch_rate(step: int) -> float:
    return (step + 1) / 3 if step < 2 else 0.1 + 0.45 * (1 + math.cos(math.pi * (step - 2) / 8))


def paddle_rate(step: int) -> float:
    warm, length, end = 2, 8, 0.1
    if step < warm:
        return (step + 1) / 3
    progress = (step - warm) / length
    return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * progress))


def decays(name: str) -> bool:
    return "norm" not in name


def paddle_optimizer(model: Any) -> Any:
    kept = {p.name for n, p in model.named_parameters() if decays(n)}
    schedule = paddle.optimizer.lr.LambdaDecay(5e-3, paddle_rate)
    made = paddle.optimizer.AdamW(
        schedule,
        beta1=0.9,
        beta2=0.95,
        epsilon=1e-8,
        parameters=model.parameters(),
        weight_decay=0.1,
        apply_decay_param_fun=lambda name: name in kept,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(0.3),
    )
    return made, schedule


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    torch_loss(model(**inputs), targets).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
    optimizer.step()
    optimizer.zero_grad()


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchLlama, PaddleLlama, seed)
    generator = arrays(seed)
    inputs = [{"ids": generator.integers(0, WORDS, (3, LENGTH))} for _ in range(STEPS)]
    targets = [np.where(generator.uniform(size=one["ids"].shape) < 0.2, IGNORED, one["ids"]) for one in inputs]
    return Trial(
        reference, candidate, inputs, targets, (torch_loss, paddle_loss), (torch_optimizer, paddle_optimizer),
        (torch_step, None),
    )  # fmt: skip
