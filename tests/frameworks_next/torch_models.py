"""The torch models that are ported to further frameworks, with settings that a port may miss."""

from __future__ import annotations

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self, *, eps=1e-5, approximate="none"):
        super().__init__()
        self.enter, self.norm = nn.Linear(12, 32), nn.LayerNorm(32, eps=eps)
        self.act, self.leave = nn.GELU(approximate), nn.Linear(32, 5)

    def forward(self, x):
        return self.leave(self.act(self.norm(self.enter(x))))


class ConvNet(nn.Module):
    def __init__(self, *, eps=1e-5, counted=True, padding=1):
        super().__init__()
        self.conv1, self.bn1, self.relu = (
            nn.Conv2d(3, 8, 3, stride=2, padding=padding),
            nn.BatchNorm2d(8, eps),
            nn.ReLU(),
        )
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8)
        self.pool, self.fc = nn.AvgPool2d(3, 2, 1, count_include_pad=counted), nn.Linear(8 * 16, 10)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.fc(torch.flatten(self.pool(x), 1))


class Residual(nn.Module):
    def __init__(self, *, slope=0.01, scale=1.0):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.act, self.scale = nn.LeakyReLU(slope), scale

    def forward(self, x):
        y = self.bn2(self.conv2(self.act(self.bn1(self.conv1(x)))))
        return self.act(x + self.scale * y)


class Stack(nn.Module):
    """Blocks below each other, so that paths have several parts."""

    def __init__(self, **settings):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 1)
        self.blocks = nn.Sequential(Residual(), Residual(**settings))

    def forward(self, x):
        return self.blocks(self.stem(x)).mean((2, 3))


class Attention(nn.Module):
    def __init__(self, width, heads, *, scaled=True):
        super().__init__()
        self.heads, self.scaled = heads, scaled
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            layer(x).reshape(batch, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2)
        if self.scaled:
            scores = scores / (width // self.heads) ** 0.5
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width=16, heads=4, *, scaled=True, eps=1e-5, approximate="none"):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, heads, scaled=scaled)
        self.norm2, self.up = nn.LayerNorm(width, eps=eps), nn.Linear(width, 4 * width)
        self.act, self.down = nn.GELU(approximate), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(self.act(self.up(self.norm2(x))))


class Language(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.embed, self.block = nn.Embedding(40, 16), Block(**settings)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 40, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.block(self.embed(ids))))


class Decoder(nn.Module):
    def __init__(self, *, groups=2, mode="bilinear"):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 8, 3, padding=1), nn.GroupNorm(groups, 8)
        self.act, self.up = nn.SiLU(), nn.Upsample(scale_factor=2, mode=mode)
        self.back = nn.ConvTranspose2d(8, 3, 4, stride=2, padding=1)

    def forward(self, x):
        return torch.sigmoid(self.back(self.up(self.act(self.norm(self.conv(x))))))


def made(kind, seed=0, **settings):
    """A model in evaluation mode, with running statistics that are not those of a new one."""
    torch.manual_seed(seed)
    model = kind(**settings)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)):
            nn.init.normal_(module.weight, 1, 0.2)
            nn.init.normal_(module.bias, 0, 0.2)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model.eval()


INPUTS = {
    Mlp: lambda: torch.randn(6, 12),
    ConvNet: lambda: torch.randn(2, 3, 16, 16),
    Stack: lambda: torch.randn(2, 3, 8, 8),
    Block: lambda: torch.randn(2, 7, 16),
    Language: lambda: torch.randint(0, 40, (2, 7)),
    Decoder: lambda: torch.randn(2, 4, 6, 6),
}


def batch_for(kind, seed=1):
    torch.manual_seed(seed)
    return INPUTS[kind]()
