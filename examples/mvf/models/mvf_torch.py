"""The MVF video recogniser in torch: ResNet-50 with multi-view fusion."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from settings import Settings
from torch import Tensor, nn
from torch.nn import functional as F


class Fusion(nn.Module):
    """Replaces the first channels by what three depthwise convolutions see along time, height and width."""

    def __init__(self, channels: int, segments: int, alpha: float) -> None:
        super().__init__()
        self.segments = segments
        self.fused = fused = int(channels * alpha)
        self.time = nn.Conv3d(fused, fused, (3, 1, 1), padding=(1, 0, 0), groups=fused, bias=False)
        self.height = nn.Conv3d(fused, fused, (1, 3, 1), padding=(0, 1, 0), groups=fused, bias=False)
        self.width = nn.Conv3d(fused, fused, (1, 1, 3), padding=(0, 0, 1), groups=fused, bias=False)
        self.norm = nn.BatchNorm3d(fused)

    def forward(self, x: Tensor) -> Tensor:
        frames, channels, height, width = x.shape
        clips = x.reshape(frames // self.segments, self.segments, channels, height, width).transpose(1, 2)
        first, rest = clips[:, : self.fused], clips[:, self.fused :]
        first = F.hardswish(self.norm(self.time(first) + self.height(first) + self.width(first)))
        return torch.cat((first, rest), dim=1).transpose(1, 2).reshape(frames, channels, height, width)


class Bottleneck(nn.Module):
    """A residual block of three convolutions; in the later stages its first one sees fused channels."""

    def __init__(self, source: int, width: int, stride: int, settings: Settings, *, fused: bool) -> None:
        super().__init__()
        self.fusion = Fusion(source, settings.segments, settings.alpha) if fused else None
        self.conv1 = nn.Conv2d(source, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * 4, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(width * 4)
        self.shortcut = self.shortcut_norm = None
        if stride != 1 or source != width * 4:
            self.shortcut = nn.Conv2d(source, width * 4, 1, stride=stride, bias=False)
            self.shortcut_norm = nn.BatchNorm2d(width * 4)

    def forward(self, x: Tensor) -> Tensor:
        seen = x if self.fusion is None else self.fusion(x)
        y = F.relu(self.norm1(self.conv1(seen)))
        y = F.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        kept = x if self.shortcut is None else self.shortcut_norm(self.shortcut(x))
        return F.relu(y + kept)


class Recogniser(nn.Module):
    """Takes clips (batch, segments, 3, height, width); gives logits averaged over the segments."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.segments = settings.segments
        width = settings.width
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stages = nn.ModuleList()
        source = width
        for number, blocks in enumerate(settings.blocks, start=1):
            stage = nn.ModuleList()
            for index in range(blocks):
                stride = 2 if index == 0 and number > 1 else 1
                fused = number in settings.fused_stages
                stage.append(Bottleneck(source, width, stride, settings, fused=fused))
                source = width * 4
            self.stages.append(stage)
            width *= 2
        self.average = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(source, settings.classes)

    def forward(self, clips: Tensor) -> Tensor:
        x = clips.reshape(-1, *clips.shape[2:])
        x = self.pool(F.relu(self.norm1(self.conv1(x))))
        for stage in self.stages:
            for block in stage:
                x = block(x)
        logits = self.head(self.dropout(self.average(x).flatten(1)))
        return logits.reshape(-1, self.segments, logits.shape[1]).mean(dim=1)


def build_model(settings: Settings, weights: Mapping[str, np.ndarray]) -> Recogniser:
    """Returns the model in eval mode with the given weights (no dropout, running statistics of the normalisations)."""
    model = Recogniser(settings).to(getattr(torch, settings.dtype))
    arrays = {name: torch.from_numpy(array) for name, array in weights.items()}
    missing, unexpected = model.load_state_dict(arrays, strict=False)
    # The batch counter is torch's own and not used in eval mode; everything else must be given.
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise ValueError(f"no weights for {missing}, no place for {unexpected}")
    return model.eval()
