"""A small encoder in the manner of BERT: three embeddings, self-attention with a padding mask, a pooler."""

from typing import Any

import numpy as np

DEPTH = 2
# Three embeddings and a norm, eight layers in each block, pooler, classifier.
LAYER_COUNT = 4 + 8 * DEPTH + 2


def build_torch() -> Any:
    from models_pairs.torch_side.bert import BertClassifier

    return BertClassifier(depth=DEPTH)


def build_paddle() -> Any:
    from models_pairs.paddle_side.bert import SentenceModel

    return SentenceModel(depth=DEPTH)


def make_inputs(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    mask = np.ones((2, 12), np.float32)
    mask[1, 9:] = 0.0
    return {
        "tokens": random.integers(1, 50, (2, 12)),
        "segments": random.integers(0, 2, (2, 12)),
        "mask": mask,
    }
