"""A small vision transformer with a class token, learned positions and attention made of separate linear layers."""

from typing import Any

import numpy as np

DEPTH = 3
# Patch projection, eight layers in each block, final norm, head.
LAYER_COUNT = 1 + 8 * DEPTH + 2


def build_torch() -> Any:
    from models_pairs.torch_side.vit import VisionTransformer

    return VisionTransformer(depth=DEPTH)


def build_paddle() -> Any:
    from models_pairs.paddle_side.vit import PatchClassifier

    return PatchClassifier(depth=DEPTH)


def make_inputs(seed: int) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(seed).standard_normal((2, 3, 16, 16)).astype(np.float32)}
