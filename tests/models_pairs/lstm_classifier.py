"""A text classifier around two bidirectional LSTM layers, time first in torch and batch first in paddle."""

from typing import Any

import numpy as np

# Embedding, LSTM, norm, three linear layers, two of them square.
LAYER_COUNT = 6


def build_torch() -> Any:
    from models_pairs.torch_side.lstm_classifier import TextClassifier

    return TextClassifier()


def build_paddle() -> Any:
    from models_pairs.paddle_side.lstm_classifier import ReviewModel

    return ReviewModel()


def make_inputs(seed: int) -> dict[str, np.ndarray]:
    return {"tokens": np.random.default_rng(seed).integers(0, 40, (3, 9))}
