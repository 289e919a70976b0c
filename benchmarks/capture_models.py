"""The models whose training step is recorded: a small transformer encoder, a thin ResNet, and ResNet-18 as published.

The thin one is the hardest: it computes little for every number that it gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, width: int = 256, depth: int = 4, words: int = 2000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (32, 64, 128), stem: nn.Module | None = None) -> None:
        super().__init__()
        width = widths[0]
        self.stem = nn.Sequential(
            stem or nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        blocks = []
        for before, after in zip((width, *widths), widths, strict=False):
            blocks += [Block(before, after, 1 if before == after else 2), Block(after, after, 1)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def resnet18() -> nn.Module:
    """The widths and strides of ResNet-18; its pooling is left to the first convolution."""
    return ResNet((64, 128, 256, 512), nn.Conv2d(3, 64, 7, 4, 3, bias=False))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], int]] = {
    "transformer": (Transformer, lambda: torch.randint(0, 2000, (16, 64)), 2000),
    "resnet": (ResNet, lambda: torch.randn(16, 3, 32, 32), 100),
    "resnet18": (resnet18, lambda: torch.randn(16, 3, 112, 112), 100),
}


class Training:
    """A model, its optimizer and batches, the same in every process."""

    def __init__(self, name: str, steps: int) -> None:
        torch.manual_seed(0)
        build, batch, classes = MODELS[name]
        self.model = build()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.data = [(batch(), torch.randint(0, classes, (16,))) for _ in range(steps)]

    def step(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        """One plain training step."""
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss
