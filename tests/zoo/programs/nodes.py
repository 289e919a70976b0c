"""Two layers on a graph, one by its degrees and one by attention; a loss over some nodes; SGD, gradients scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as PF
import torch
import torch.nn.functional as TF
from paddle import nn as pnn
from torch import nn as tnn

from zoo.trial import Trial, arrays, with_weights

STEPS, NODES, WIDTH, HEADS = 4, 9, 8, 2


class TorchNodes(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = tnn.Linear(5, WIDTH), tnn.Linear(WIDTH, WIDTH, bias=False)
        self.ours, self.theirs = tnn.Linear(WIDTH, HEADS), tnn.Linear(WIDTH, HEADS)
        self.norm, self.head = tnn.LayerNorm(WIDTH), tnn.Linear(WIDTH, 4)

    def forward(self, x: Any, edges: Any) -> Any:
        edges = edges + torch.eye(NODES, dtype=x.dtype)
        root = edges.sum(1).rsqrt()
        x = TF.elu((root[:, None] * edges * root) @ self.first(x))
        y = self.second(x)
        scores = TF.leaky_relu(self.ours(y).T[:, :, None] + self.theirs(y).T[:, None], 0.2)
        chances = scores.masked_fill(edges == 0, -1e9).softmax(-1)
        y = (chances @ y.reshape(NODES, HEADS, -1).transpose(0, 1)).transpose(0, 1).flatten(1)
        return self.head(self.norm(x + y))


class PaddleNodes(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pnn.Linear(5, WIDTH), pnn.Linear(WIDTH, WIDTH, bias_attr=False)
        self.ours, self.theirs = pnn.Linear(WIDTH, HEADS), pnn.Linear(WIDTH, HEADS)
        self.norm, self.head = pnn.LayerNorm(WIDTH), pnn.Linear(WIDTH, 4)

    def forward(self, x: Any, edges: Any) -> Any:
        edges = edges + paddle.eye(NODES).astype(x.dtype)
        root = paddle.rsqrt(edges.sum(1))
        even = root.unsqueeze(1) * edges * root
        x = PF.elu(even @ self.first(x))
        y = self.second(x)
        scores = self.ours(y).T.unsqueeze(2) + self.theirs(y).T.unsqueeze(1)
        scores = PF.leaky_relu(scores, 0.2)
        scores = paddle.where(edges == 0, paddle.full([], -1e9, x.dtype), scores)
        chances = PF.softmax(scores, -1)
        heads = y.reshape([NODES, HEADS, -1]).transpose([1, 0, 2])
        y = (chances @ heads).transpose([1, 0, 2]).flatten(1)
        return self.head(self.norm(x + y))


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    labels, known = targets["labels"], targets["known"]
    loss = TF.cross_entropy(model(**inputs)[known], labels[known])
    (8 * loss).backward()
    for one in model.parameters():
        one.grad /= 8
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.7)
    optimizer.step()
    optimizer.zero_grad()


def paddle_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    labels, known = targets["labels"], targets["known"]
    loss = PF.cross_entropy(model(**inputs)[known], labels[known])
    (8 * loss).backward()
    for one in model.parameters():
        one.grad.set_value(one.grad / 8)
    paddle.nn.utils.clip_grad_norm_(model.parameters(), 0.7)
    optimizer.step()
    optimizer.clear_grad()


def torch_optimizer(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, dampening=0.0, weight_decay=3e-3)


def paddle_optimizer(model: Any) -> Any:
    return paddle.optimizer.Momentum(0.05, 0.9, parameters=model.parameters(), weight_decay=3e-3)


def trial(seed: int = 0) -> Trial:
    reference, candidate = with_weights(TorchNodes, PaddleNodes, seed)
    some = arrays(seed)

    def edges() -> Any:
        found = np.triu(some.random((NODES, NODES)) < 0.35, 1)
        return (found | found.T).astype(np.float32)

    inputs = [{"x": some.normal(size=(NODES, 5)).astype(np.float32), "edges": edges()} for _ in range(STEPS)]
    targets = [
        {"labels": some.integers(0, 4, NODES), "known": np.arange(NODES) % 3 != step % 3} for step in range(STEPS)
    ]
    return Trial(
        reference, candidate, inputs, targets,
        optimizer=(torch_optimizer, paddle_optimizer), step=(torch_step, paddle_step),
    )  # fmt: skip
