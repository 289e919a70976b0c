"""The MVF video recogniser in paddle, and the layout rules that carry torch's weights into it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F
from settings import Settings


class Fusion(nn.Layer):
    """Replaces the first channels by what three depthwise convolutions see along time, height and width."""

    def __init__(self, channels: int, segments: int, alpha: float) -> None:
        super().__init__()
        self.segments = segments
        self.fused = fused = int(channels * alpha)
        self.time = nn.Conv3D(fused, fused, (3, 1, 1), padding=(1, 0, 0), groups=fused, bias_attr=False)
        self.height = nn.Conv3D(fused, fused, (1, 3, 1), padding=(0, 1, 0), groups=fused, bias_attr=False)
        self.width = nn.Conv3D(fused, fused, (1, 1, 3), padding=(0, 0, 1), groups=fused, bias_attr=False)
        self.norm = nn.BatchNorm3D(fused)

    def forward(self, x: Tensor) -> Tensor:
        frames, channels, height, width = x.shape
        clips = x.reshape([frames // self.segments, self.segments, channels, height, width]).transpose([0, 2, 1, 3, 4])
        first, rest = clips[:, : self.fused], clips[:, self.fused :]
        first = F.hardswish(self.norm(self.time(first) + self.height(first) + self.width(first)))
        joined = paddle.concat((first, rest), axis=1).transpose([0, 2, 1, 3, 4])
        return joined.reshape([frames, channels, height, width])


class Bottleneck(nn.Layer):
    """A residual block of three convolutions; in the later stages its first one sees fused channels."""

    def __init__(self, source: int, width: int, stride: int, settings: Settings, *, fused: bool) -> None:
        super().__init__()
        self.fusion = Fusion(source, settings.segments, settings.alpha) if fused else None
        self.conv1 = nn.Conv2D(source, width, 1, bias_attr=False)
        self.norm1 = nn.BatchNorm2D(width)
        self.conv2 = nn.Conv2D(width, width, 3, stride=stride, padding=1, bias_attr=False)
        self.norm2 = nn.BatchNorm2D(width)
        self.conv3 = nn.Conv2D(width, width * 4, 1, bias_attr=False)
        self.norm3 = nn.BatchNorm2D(width * 4)
        self.shortcut = self.shortcut_norm = None
        if stride != 1 or source != width * 4:
            self.shortcut = nn.Conv2D(source, width * 4, 1, stride=stride, bias_attr=False)
            self.shortcut_norm = nn.BatchNorm2D(width * 4)

    def forward(self, x: Tensor) -> Tensor:
        seen = x if self.fusion is None else self.fusion(x)
        y = F.relu(self.norm1(self.conv1(seen)))
        y = F.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        kept = x if self.shortcut is None else self.shortcut_norm(self.shortcut(x))
        return F.relu(y + kept)


class Recogniser(nn.Layer):
    """Takes clips (batch, segments, 3, height, width); gives logits averaged over the segments."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.segments = settings.segments
        width = settings.width
        self.conv1 = nn.Conv2D(3, width, 7, stride=2, padding=3, bias_attr=False)
        self.norm1 = nn.BatchNorm2D(width)
        self.pool = nn.MaxPool2D(3, stride=2, padding=1)
        self.stages = nn.LayerList()
        source = width
        for number, blocks in enumerate(settings.blocks, start=1):
            stage = nn.LayerList()
            for index in range(blocks):
                stride = 2 if index == 0 and number > 1 else 1
                fused = number in settings.fused_stages
                stage.append(Bottleneck(source, width, stride, settings, fused=fused))
                source = width * 4
            self.stages.append(stage)
            width *= 2
        self.average = nn.AdaptiveAvgPool2D(1)
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(source, settings.classes)

    def forward(self, clips: Tensor) -> Tensor:
        x = clips.reshape([-1, *clips.shape[2:]])
        x = self.pool(F.relu(self.norm1(self.conv1(x))))
        for stage in self.stages:
            for block in stage:
                x = block(x)
        logits = self.head(self.dropout(self.average(x).flatten(1)))
        return logits.reshape([-1, self.segments, logits.shape[1]]).mean(axis=1)


def build_model(settings: Settings, weights: Mapping[str, np.ndarray]) -> Recogniser:
    """Returns the model in eval mode with the given weights (no dropout, running statistics of the normalisations)."""
    model = Recogniser(settings)
    model.to(dtype=settings.dtype)
    load_torch_weights(model, weights)
    model.eval()
    return model


def load_torch_weights(model: nn.Layer, weights: Mapping[str, np.ndarray]) -> None:
    """Sets every parameter and buffer: linear weights are transposed, running statistics have other names."""
    paddle_names = {"running_mean": "_mean", "running_var": "_variance"}
    linear = {name for name, layer in model.named_sublayers() if isinstance(layer, nn.Linear)}
    state = model.state_dict()
    for name, array in weights.items():
        layer, _, kind = name.rpartition(".")
        target = state.pop(f"{layer}.{paddle_names.get(kind, kind)}")
        if layer in linear and kind == "weight":
            array = array.T
        if tuple(target.shape) != array.shape:
            raise ValueError(f"{name} has shape {target.shape}, the stored weight {array.shape}")
        target.set_value(paddle.to_tensor(array).astype(target.dtype))
    if state:
        raise ValueError(f"no weights for {sorted(state)}")
