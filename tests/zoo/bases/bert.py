"""Two BERT-like encoder layers with a padding mask: AdamW without decay on biases and norms, warm-up, clipping."""

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

from reprod_log.transfer import transfer_weights
from zoo.trial import Trial, arrays

STEPS, WIDTH, HEADS, WORDS, LENGTH, PAD = 3, 16, 2, 30, 7, 1
EPS = 1e-12


class TorchLayer(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (tnn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm1, self.norm2 = tnn.LayerNorm(WIDTH, eps=EPS), tnn.LayerNorm(WIDTH, eps=EPS)
        self.up, self.down = tnn.Linear(WIDTH, 32), tnn.Linear(32, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        def heads(y: torch.Tensor) -> torch.Tensor:
            return y.view(*y.shape[:2], HEADS, -1).transpose(1, 2)

        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        scores = scores + (1.0 - mask[:, None, None, :]) * -1e4
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.down(TF.gelu(self.up(x))))


class TorchBert(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = tnn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        self.places = tnn.Embedding(LENGTH, WIDTH)
        self.norm = tnn.LayerNorm(WIDTH, eps=EPS)
        self.layers = tnn.ModuleList([TorchLayer(), TorchLayer()])
        self.pooler, self.head = tnn.Linear(WIDTH, WIDTH), tnn.Linear(WIDTH, 3)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


class PaddleLayer(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (pnn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm1, self.norm2 = pnn.LayerNorm(WIDTH, epsilon=EPS), pnn.LayerNorm(WIDTH, epsilon=EPS)
        self.up, self.down = pnn.Linear(WIDTH, 32), pnn.Linear(32, WIDTH)

    def scaled(self, scores: Any) -> Any:
        return scores / math.sqrt(WIDTH // HEADS)

    def masked(self, scores: Any, mask: Any) -> Any:
        return scores + (1.0 - mask.unsqueeze([1, 2])) * -1e4

    def weights(self, scores: Any) -> Any:
        return PF.softmax(scores, axis=-1)

    def attend(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = self.masked(self.scaled(q @ k.transpose([0, 1, 3, 2])), mask)
        return (self.weights(scores) @ v).transpose([0, 2, 1, 3]).flatten(2)

    def activate(self, x: Any) -> Any:
        return PF.gelu(x)

    def residual(self, x: Any, y: Any) -> Any:
        return x + y

    def forward(self, x: Any, mask: Any) -> Any:
        def heads(y: Any) -> Any:
            return y.reshape([*y.shape[:2], HEADS, -1]).transpose([0, 2, 1, 3])

        mixed = self.attend(heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), mask)
        x = self.norm1(self.residual(x, self.out(mixed)))
        return self.norm2(x + self.down(self.activate(self.up(x))))


class PaddleBert(pnn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words = pnn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        self.places = pnn.Embedding(LENGTH, WIDTH)
        self.norm = pnn.LayerNorm(WIDTH, epsilon=EPS)
        self.layers = pnn.LayerList([PaddleLayer(), PaddleLayer()])
        self.pooler, self.head = pnn.Linear(WIDTH, WIDTH), pnn.Linear(WIDTH, 3)

    def positions(self, ids: Any) -> Any:
        return paddle.arange(ids.shape[1])

    def pool(self, x: Any) -> Any:
        return x[:, 0]

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.norm(self.words(ids) + self.places(self.positions(ids)))
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(paddle.tanh(self.pooler(self.pool(x))))


def decays(name: str) -> bool:
    return "bias" not in name and "norm" not in name


def warm_up(step: int) -> float:
    return min((step + 1) / 3, 1.0) * (1 - step / 20)


def torch_optimizer(model: Any) -> Any:
    named = list(model.named_parameters())
    made = torch.optim.AdamW(
        [
            {"params": [p for n, p in named if decays(n)], "weight_decay": 0.05},
            {"params": [p for n, p in named if not decays(n)], "weight_decay": 0.0},
        ],
        lr=1e-2,
        betas=(0.9, 0.98),
        eps=1e-6,
    )
    return made, torch.optim.lr_scheduler.LambdaLR(made, warm_up)


def paddle_optimizer(model: Any, **other: Any) -> Any:
    """The port's optimizer; `other` replaces its settings."""
    schedule = other.pop("schedule", None) or paddle.optimizer.lr.LambdaDecay(1e-2, warm_up)
    kept = {p.name for n, p in model.named_parameters() if decays(n)}
    kind = other.pop("kind", paddle.optimizer.AdamW)
    given: dict[str, Any] = {
        "beta1": 0.9,
        "beta2": 0.98,
        "epsilon": 1e-6,
        "weight_decay": 0.05,
        "grad_clip": paddle.nn.ClipGradByGlobalNorm(0.5),
        "parameters": model.parameters(),
    }
    if kind is paddle.optimizer.AdamW:
        given["apply_decay_param_fun"] = lambda name: name in kept
    return kind(schedule, **{**given, **other}), schedule


def torch_loss(outputs: Any, targets: Any) -> Any:
    # Gradients well above torch's 1e-6 in the clipping norm, which is a difference of its own.
    return 5.0 * TF.cross_entropy(outputs, targets)


def paddle_loss(outputs: Any, targets: Any) -> Any:
    return 5.0 * PF.cross_entropy(outputs, targets)


def torch_step(model: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    torch_loss(model(**inputs), targets).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()


def batches(seed: int, steps: int = STEPS) -> tuple[list[Any], list[Any]]:
    generator = arrays(seed)
    inputs = []
    for _ in range(steps):
        lengths = np.array([LENGTH, LENGTH - 2, LENGTH - 3])
        mask = (np.arange(LENGTH)[None] < lengths[:, None]).astype(np.float32)
        ids = np.where(mask > 0, generator.integers(2, WORDS, (3, LENGTH)), PAD)
        inputs.append({"ids": ids, "mask": mask})
    return inputs, [generator.integers(0, 3, 3) for _ in range(steps)]


def trial(seed: int = 0) -> Trial:
    torch.manual_seed(seed)
    paddle.seed(seed + 100)
    reference, candidate = TorchBert(), PaddleBert()
    for name, parameter in reference.named_parameters():
        if "norm" in name:
            tnn.init.uniform_(parameter, 0.4, 1.4)
        elif "bias" in name:
            tnn.init.normal_(parameter, 0, 0.2)
    transfer_weights(reference, candidate, on_difference="report")
    inputs, targets = batches(seed)
    return Trial(
        reference,
        candidate,
        inputs,
        targets,
        (torch_loss, paddle_loss),
        (torch_optimizer, paddle_optimizer),
        (torch_step, None),
    )
