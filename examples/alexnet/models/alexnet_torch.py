"""AlexNet in torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from settings import Settings
from torch import Tensor, nn
from torch.nn import functional as F


class AlexNet(nn.Module):
    """Five convolutions and three linear layers; gives the logits."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        c1, c2, c3, c4, c5 = settings.channels
        self.conv1 = nn.Conv2d(3, c1, 11, stride=4, padding=2)
        self.conv2 = nn.Conv2d(c1, c2, 5, padding=2)
        self.conv3 = nn.Conv2d(c2, c3, 3, padding=1)
        self.conv4 = nn.Conv2d(c3, c4, 3, padding=1)
        self.conv5 = nn.Conv2d(c4, c5, 3, padding=1)
        self.pool = nn.MaxPool2d(3, stride=2)
        self.average = nn.AdaptiveAvgPool2d(6)
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
    model = AlexNet(settings).to(getattr(torch, settings.dtype))
    # strict: a missing or left-over weight is an error, not a random start.
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, strict=True)
    return model.eval()
