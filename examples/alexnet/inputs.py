"""Fake data, labels and weights, drawn once with seeded numpy and read by both sides.

`python inputs.py [--full] [--init he08]` makes the files and prints their hashes; every script makes them itself
when they are missing.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
from settings import Settings, read_settings

Arrays = dict[str, np.ndarray]


def fake_data(settings: Settings) -> Arrays:
    """Returns one fake picture in [-0.5, 0.5) and its label, 0."""
    size = settings.image_size
    rng = np.random.default_rng(settings.data_seed)
    picture = (rng.random((1, 3, size, size)) - 0.5).astype(np.float32)
    return {"fake_data": picture, "fake_label": np.array([0], dtype=np.int64)}


def metric_data(settings: Settings) -> Arrays:
    """Returns the pictures and labels of the metric step; every second label is the class the model favours."""
    size, count = settings.image_size, settings.metric_images
    rng = np.random.default_rng(settings.data_seed + 1)
    pictures = (rng.random((count, 3, size, size)) - 0.5).astype(np.float32)
    labels = rng.integers(0, settings.classes, count)
    labels[::2] = settings.favoured_class[settings.init]
    return {"metric_data": pictures, "metric_label": labels}


def training_pictures(settings: Settings, count: int, *, stream: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns `count` made pictures and labels: each class has a coarse pattern of its own, under noise."""
    # 14 is the side of the coarse pattern: each of its cells becomes a 16 x 16 square of the picture.
    cells = settings.image_size // 14
    patterns = np.random.default_rng(settings.data_seed + 2).standard_normal((settings.train_classes, 3, 14, 14))
    rng = np.random.default_rng([settings.data_seed, stream])
    labels = rng.integers(0, settings.train_classes, count)
    noisy = 3.0 * patterns[labels] + rng.standard_normal((count, 3, 14, 14))
    return noisy.repeat(cells, axis=2).repeat(cells, axis=3).astype(np.float32), labels


def weight_shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """Returns name and shape of every parameter, in torch's layout."""
    c1, c2, c3, c4, c5 = settings.channels
    weights = {
        "conv1": (c1, 3, 11, 11),
        "conv2": (c2, c1, 5, 5),
        "conv3": (c3, c2, 3, 3),
        "conv4": (c4, c3, 3, 3),
        "conv5": (c5, c4, 3, 3),
        "fc6": (settings.hidden, c5 * 36),
        "fc7": (settings.hidden, settings.hidden),
        "fc8": (settings.classes, settings.hidden),
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, shape in weights.items():
        shapes[f"{layer}.weight"] = shape
        shapes[f"{layer}.bias"] = shape[:1]
    return shapes


def draw_weights(settings: Settings) -> Arrays:
    """Returns the weights of `settings.init`.

    default: uniform in ±1/sqrt(fan_in) for weight and bias, the distribution torch starts from.
    he08: normal with 0.8 of He's standard deviation, no bias: activations keep their size through the depth, as in a
    trained network.
    """
    he = settings.init == "he08"
    rng = np.random.default_rng(settings.he_seed if he else settings.weight_seed)
    drawn: Arrays = {}
    fan_in = 0
    for name, shape in weight_shapes(settings).items():
        if name.endswith(".weight"):
            fan_in = int(np.prod(shape[1:]))
        if not he:
            bound = fan_in**-0.5
            drawn[name] = rng.uniform(-bound, bound, shape).astype(np.float32)
        elif name.endswith(".weight"):
            drawn[name] = (rng.standard_normal(shape) * 0.8 * (2 / fan_in) ** 0.5).astype(np.float32)
        else:
            drawn[name] = np.zeros(shape, np.float32)
    return drawn


def load_data(settings: Settings) -> Arrays:
    """Returns the data of the forward, metric, loss and backward steps, made and saved if they are not there."""
    path = settings.inputs_folder / "fake_data.npz"
    if not path.exists():
        _save(path, {**fake_data(settings), **metric_data(settings)})
    return dict(np.load(path))


def load_weights(settings: Settings) -> Arrays:
    """Returns the weights in torch's layout, drawn and saved if they are not there."""
    path = settings.inputs_folder / "weights.npz"
    if not path.exists():
        _save(path, draw_weights(settings))
    return dict(np.load(path))


def hashes(arrays: Arrays) -> dict[str, str]:
    """Returns the hash of each array, to say in a record what a run was fed with."""
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}


def _save(path: Path, arrays: Arrays) -> None:
    # Written aside and renamed: two sides started together must not read a half-written file.
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{os.getpid()}-{path.name}")
    np.savez(partial, **arrays)
    partial.replace(path)


if __name__ == "__main__":
    chosen = read_settings(__doc__)
    made = {**load_data(chosen), **load_weights(chosen)}
    for key, digest in hashes(made).items():
        print(f"{digest[:16]}  {key} {made[key].dtype} {made[key].shape}")
    print(f"{chosen.inputs_folder}: {sum(a.size for n, a in made.items() if n in weight_shapes(chosen)):,} parameters")
