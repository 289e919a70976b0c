"""Reads the fake data and the weights of either side; makes them first where they are missing.

`python inputs.py [--full]` makes everything and prints the hashes.
"""

from __future__ import annotations

import hashlib

import numpy as np
from body_weights.generate_body_weights import generate_body_weights
from classifier_weights.generate_classifier_weights import generate_classifier_weights
from fake_data.gen_fake_data import gen_fake_data
from settings import ROOT, Settings, read_settings

Arrays = dict[str, np.ndarray]


def load_data(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Returns token ids and labels."""
    paths = [ROOT / "fake_data" / "fake_data.npy", ROOT / "fake_data" / "fake_label.npy"]
    if not all(path.exists() for path in paths):
        gen_fake_data(settings)
    ids, labels = (np.load(path) for path in paths)
    return ids, labels


def load_body(settings: Settings) -> Arrays:
    """Returns the weights of everything below the head, in torch's layout."""
    path = ROOT / "body_weights" / f"body_weights{settings.suffix}.npz"
    if not path.exists():
        generate_body_weights(settings)
    return dict(np.load(path))


def load_classifier(settings: Settings, *, side: str) -> Arrays:
    """Returns the head's weights in the layout of `side`, "torch" or "paddle"."""
    path = ROOT / "classifier_weights" / f"{side}_classifier_weights{settings.suffix}.npz"
    if not path.exists():
        generate_classifier_weights(settings)
    return dict(np.load(path))


def hashes(arrays: Arrays) -> dict[str, str]:
    """Returns the hash of each array, to say in a record what a run was fed with."""
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}


if __name__ == "__main__":
    chosen = read_settings(__doc__)
    made = dict(zip(("fake_data", "fake_label"), load_data(chosen), strict=True))
    made |= load_body(chosen) | load_classifier(chosen, side="torch")
    for key, digest in hashes(made).items():
        print(f"{digest[:16]}  {key} {made[key].dtype} {made[key].shape}")
