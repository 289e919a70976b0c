"""A ResNet-18 of its usual structure, an eighth as wide."""

from typing import Any

import numpy as np

# Stem, eight blocks of two convolutions and two norms, three shortcuts of both, head.
LAYER_COUNT = 2 + 8 * 4 + 3 * 2 + 1


def build_torch() -> Any:
    from models_pairs.torch_side.resnet18 import ResNet

    return ResNet()


def build_paddle() -> Any:
    from models_pairs.paddle_side.resnet18 import ResidualNetwork

    return ResidualNetwork()


def make_inputs(seed: int) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(seed).standard_normal((2, 3, 64, 64)).astype(np.float32)}
