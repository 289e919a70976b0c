"""AlexNet in paddle, and the layout rules that carry torch's weights into it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F
from settings import Settings


class AlexNet(nn.Layer):
    """Five convolutions and three linear layers; gives the logits."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        c1, c2, c3, c4, c5 = settings.channels
        self.conv1 = nn.Conv2D(3, c1, 11, stride=4, padding=2)
        self.conv2 = nn.Conv2D(c1, c2, 5, padding=2)
        self.conv3 = nn.Conv2D(c2, c3, 3, padding=1)
        self.conv4 = nn.Conv2D(c3, c4, 3, padding=1)
        self.conv5 = nn.Conv2D(c4, c5, 3, padding=1)
        self.pool = nn.MaxPool2D(3, stride=2)
        self.average = nn.AdaptiveAvgPool2D(6)
        self.dropout = nn.Dropout(0.5)
        self.fc6 = nn.Linear(c5 * 36, settings.hidden)
        self.fc7 = nn.Linear(settings.hidden, settings.hidden)
        self.fc8 = nn.Linear(settings.hidden, settings.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = F.relu(self.conv3(x))
        x = F.relu(self.conv4(x))
        x = self.pool(F.relu(self.conv5(x)))
        x = self.average(x).flatten(1)
        x = F.relu(self.fc6(self.dropout(x)))
        x = F.relu(self.fc7(self.dropout(x)))
        return self.fc8(x)


def build_model(settings: Settings, weights: Mapping[str, np.ndarray]) -> AlexNet:
    """Returns the model in eval mode with the given weights (dropout off: the two frameworks draw different masks)."""
    model = AlexNet(settings)
    model.to(dtype=settings.dtype)
    load_torch_weights(model, weights)
    model.eval()
    return model


def load_torch_weights(model: nn.Layer, weights: Mapping[str, np.ndarray]) -> None:
    """Sets every parameter from torch's layout: linear weights are transposed, everything else is taken as it is."""
    # By layer type, not by shape: a square matrix fits both ways.
    transposed = {f"{name}.weight" for name, layer in model.named_sublayers() if isinstance(layer, nn.Linear)}
    left = dict(weights)
    for name, parameter in model.named_parameters():
        array = left.pop(name)
        if name in transposed:
            array = array.T
        if tuple(parameter.shape) != array.shape:
            raise ValueError(f"{name} has shape {parameter.shape}, the stored weight {array.shape}")
        parameter.set_value(paddle.to_tensor(array).astype(parameter.dtype))
    if left:
        raise ValueError(f"weights without a parameter: {sorted(left)}")
