"""DiscoGAN's generator and discriminator in torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from settings import NETWORKS, Settings
from torch import Tensor, nn
from torch.nn import functional as F


class Generator(nn.Module):
    """Four convolutions down to 4 x 4 and four transposed ones back; gives a picture in (0, 1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(3, width, 4, stride=2, padding=1, bias=False)
        self.down2 = nn.Conv2d(width, width * 2, 4, stride=2, padding=1, bias=False)
        self.down_norm2 = nn.BatchNorm2d(width * 2)
        self.down3 = nn.Conv2d(width * 2, width * 4, 4, stride=2, padding=1, bias=False)
        self.down_norm3 = nn.BatchNorm2d(width * 4)
        self.down4 = nn.Conv2d(width * 4, width * 8, 4, stride=2, padding=1, bias=False)
        self.down_norm4 = nn.BatchNorm2d(width * 8)
        self.up1 = nn.ConvTranspose2d(width * 8, width * 4, 4, stride=2, padding=1, bias=False)
        self.up_norm1 = nn.BatchNorm2d(width * 4)
        self.up2 = nn.ConvTranspose2d(width * 4, width * 2, 4, stride=2, padding=1, bias=False)
        self.up_norm2 = nn.BatchNorm2d(width * 2)
        self.up3 = nn.ConvTranspose2d(width * 2, width, 4, stride=2, padding=1, bias=False)
        self.up_norm3 = nn.BatchNorm2d(width)
        self.up4 = nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.down1(x), 0.2)
        x = F.leaky_relu(self.down_norm2(self.down2(x)), 0.2)
        x = F.leaky_relu(self.down_norm3(self.down3(x)), 0.2)
        x = F.leaky_relu(self.down_norm4(self.down4(x)), 0.2)
        x = F.relu(self.up_norm1(self.up1(x)))
        x = F.relu(self.up_norm2(self.up2(x)))
        x = F.relu(self.up_norm3(self.up3(x)))
        return torch.sigmoid(self.up4(x))


class Discriminator(nn.Module):
    """Four convolutions down to 4 x 4 and one to a single number; gives the probability and three feature maps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 4, stride=2, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width * 2, 4, stride=2, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width * 2)
        self.conv3 = nn.Conv2d(width * 2, width * 4, 4, stride=2, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(width * 4)
        self.conv4 = nn.Conv2d(width * 4, width * 8, 4, stride=2, padding=1, bias=False)
        self.norm4 = nn.BatchNorm2d(width * 8)
        self.conv5 = nn.Conv2d(width * 8, 1, 4, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        features1 = F.leaky_relu(self.conv1(x), 0.2)
        features2 = F.leaky_relu(self.norm2(self.conv2(features1)), 0.2)
        features3 = F.leaky_relu(self.norm3(self.conv3(features2)), 0.2)
        features4 = F.leaky_relu(self.norm4(self.conv4(features3)), 0.2)
        probability = torch.sigmoid(self.conv5(features4)).flatten(1)
        return probability, [features2, features3, features4]


def build_networks(settings: Settings, weights: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, nn.Module]:
    """Returns the four networks by name, in eval mode, each with its own weights."""
    networks: dict[str, nn.Module] = {}
    for name in NETWORKS:
        network = Generator(settings.width) if "gen" in name else Discriminator(settings.width)
        network = network.to(getattr(torch, settings.dtype))
        arrays = {key: torch.from_numpy(array) for key, array in weights[name].items()}
        missing, unexpected = network.load_state_dict(arrays, strict=False)
        # The batch counter is torch's own and not used in eval mode; everything else must be given.
        missing = [key for key in missing if not key.endswith("num_batches_tracked")]
        if missing or unexpected:
            raise ValueError(f"{name}: no weights for {missing}, no place for {unexpected}")
        networks[name] = network.eval()
    return networks
