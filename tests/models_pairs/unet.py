"""A U-Net of depth two with group norm, transposed convolutions and skip connections."""

from typing import Any

import numpy as np

# Five double convolutions of two convolutions and two norms, two transposed convolutions, one last convolution.
LAYER_COUNT = 5 * 4 + 2 + 1


def build_torch() -> Any:
    from models_pairs.torch_side.unet import UNet

    return UNet()


def build_paddle() -> Any:
    from models_pairs.paddle_side.unet import Segmenter

    return Segmenter()


def make_inputs(seed: int) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(seed).standard_normal((2, 3, 16, 16)).astype(np.float32)}
