"""Makes the two-class head: the same numbers in torch's layout and in paddle's.

torch_classifier_weights.npz has the weight as (classes, hidden), paddle_classifier_weights.npz as (hidden, classes).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from settings import Settings, read_settings

HERE = Path(__file__).resolve().parent


def generate_classifier_weights(settings: Settings) -> None:
    """Writes the two files: normal weights with standard deviation 0.02, no bias."""
    rng = np.random.RandomState(settings.classifier_seed)
    weight = rng.normal(0.0, 0.02, (settings.hidden, settings.classes)).astype(np.float32)
    bias = np.zeros(settings.classes, np.float32)
    for side, array in (("torch", weight.T), ("paddle", weight)):
        path = HERE / f"{side}_classifier_weights{settings.suffix}.npz"
        np.savez(path, **{"classifier.weight": array, "classifier.bias": bias})


if __name__ == "__main__":
    generate_classifier_weights(read_settings(__doc__))
