"""DiscoGAN's generator and discriminator in paddle, and the rules that carry torch's weights into them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F
from settings import NETWORKS, Settings


class Generator(nn.Layer):
    """Four convolutions down to 4 x 4 and four transposed ones back; gives a picture in (0, 1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down1 = nn.Conv2D(3, width, 4, stride=2, padding=1, bias_attr=False)
        self.down2 = nn.Conv2D(width, width * 2, 4, stride=2, padding=1, bias_attr=False)
        self.down_norm2 = nn.BatchNorm2D(width * 2)
        self.down3 = nn.Conv2D(width * 2, width * 4, 4, stride=2, padding=1, bias_attr=False)
        self.down_norm3 = nn.BatchNorm2D(width * 4)
        self.down4 = nn.Conv2D(width * 4, width * 8, 4, stride=2, padding=1, bias_attr=False)
        self.down_norm4 = nn.BatchNorm2D(width * 8)
        self.up1 = nn.Conv2DTranspose(width * 8, width * 4, 4, stride=2, padding=1, bias_attr=False)
        self.up_norm1 = nn.BatchNorm2D(width * 4)
        self.up2 = nn.Conv2DTranspose(width * 4, width * 2, 4, stride=2, padding=1, bias_attr=False)
        self.up_norm2 = nn.BatchNorm2D(width * 2)
        self.up3 = nn.Conv2DTranspose(width * 2, width, 4, stride=2, padding=1, bias_attr=False)
        self.up_norm3 = nn.BatchNorm2D(width)
        self.up4 = nn.Conv2DTranspose(width, 3, 4, stride=2, padding=1, bias_attr=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.down1(x), 0.2)
        x = F.leaky_relu(self.down_norm2(self.down2(x)), 0.2)
        x = F.leaky_relu(self.down_norm3(self.down3(x)), 0.2)
        x = F.leaky_relu(self.down_norm4(self.down4(x)), 0.2)
        x = F.relu(self.up_norm1(self.up1(x)))
        x = F.relu(self.up_norm2(self.up2(x)))
        x = F.relu(self.up_norm3(self.up3(x)))
        return F.sigmoid(self.up4(x))


class Discriminator(nn.Layer):
    """Four convolutions down to 4 x 4 and one to a single number; gives the probability and three feature maps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2D(3, width, 4, stride=2, padding=1, bias_attr=False)
        self.conv2 = nn.Conv2D(width, width * 2, 4, stride=2, padding=1, bias_attr=False)
        self.norm2 = nn.BatchNorm2D(width * 2)
        self.conv3 = nn.Conv2D(width * 2, width * 4, 4, stride=2, padding=1, bias_attr=False)
        self.norm3 = nn.BatchNorm2D(width * 4)
        self.conv4 = nn.Conv2D(width * 4, width * 8, 4, stride=2, padding=1, bias_attr=False)
        self.norm4 = nn.BatchNorm2D(width * 8)
        self.conv5 = nn.Conv2D(width * 8, 1, 4, bias_attr=False)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        features1 = F.leaky_relu(self.conv1(x), 0.2)
        features2 = F.leaky_relu(self.norm2(self.conv2(features1)), 0.2)
        features3 = F.leaky_relu(self.norm3(self.conv3(features2)), 0.2)
        features4 = F.leaky_relu(self.norm4(self.conv4(features3)), 0.2)
        probability = F.sigmoid(self.conv5(features4)).flatten(1)
        return probability, [features2, features3, features4]


def build_networks(settings: Settings, weights: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, nn.Layer]:
    """Returns the four networks by name, in eval mode, each with its own weights."""
    networks: dict[str, nn.Layer] = {}
    for name in NETWORKS:
        network = Generator(settings.width) if "gen" in name else Discriminator(settings.width)
        network.to(dtype=settings.dtype)
        load_torch_weights(network, weights[name])
        network.eval()
        networks[name] = network
    return networks


def load_torch_weights(network: nn.Layer, weights: Mapping[str, np.ndarray]) -> None:
    """Sets every parameter and buffer: convolutions have torch's layout, running statistics have other names."""
    paddle_names = {"running_mean": "_mean", "running_var": "_variance"}
    state = network.state_dict()
    for name, array in weights.items():
        layer, _, kind = name.rpartition(".")
        target = state.pop(f"{layer}.{paddle_names.get(kind, kind)}")
        if tuple(target.shape) != array.shape:
            raise ValueError(f"{name} has shape {target.shape}, the stored weight {array.shape}")
        target.set_value(paddle.to_tensor(array).astype(target.dtype))
    if state:
        raise ValueError(f"no weights for {sorted(state)}")
