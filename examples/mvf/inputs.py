"""Weights and fake clips, drawn once with seeded numpy and read by both sides.

`python inputs.py [--full] [--as-published]` makes the weights and prints their hashes; every script makes them itself
when they are missing.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np
from settings import ROOT, Settings, read_settings

Arrays = dict[str, np.ndarray]


def fake_clips(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Returns fake clips in [0, 1) and their labels."""
    rng = np.random.default_rng(settings.data_seed)
    shape = (settings.batch, settings.segments, 3, settings.image_size, settings.image_size)
    clips = rng.random(shape, dtype=np.float32)
    return clips, rng.integers(0, settings.classes, settings.batch)


def load_clips(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Returns the clips and labels that alignment/step1/create_fakedata.py saved; makes them if they are not there."""
    folder = ROOT / "alignment" / "step1" / f"fakedata-{settings.size}"
    if not (folder / "fake_label.npy").exists():
        clips, labels = fake_clips(settings)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "fake_data.npy", clips)
        np.save(folder / "fake_label.npy", labels)
    return np.load(folder / "fake_data.npy"), np.load(folder / "fake_label.npy")


def weight_shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """Returns name and shape of every parameter and buffer, in torch's layout."""
    width = settings.width
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (width, 3, 7, 7), **_norm_shapes("norm1", width)}
    source = width
    for number, blocks in enumerate(settings.blocks, start=1):
        for index in range(blocks):
            name = f"stages.{number - 1}.{index}"
            if number in settings.fused_stages:
                shapes |= _fusion_shapes(f"{name}.fusion", int(source * settings.alpha))
            shapes |= {
                f"{name}.conv1.weight": (width, source, 1, 1),
                **_norm_shapes(f"{name}.norm1", width),
                f"{name}.conv2.weight": (width, width, 3, 3),
                **_norm_shapes(f"{name}.norm2", width),
                f"{name}.conv3.weight": (width * 4, width, 1, 1),
                **_norm_shapes(f"{name}.norm3", width * 4),
            }
            if index == 0:
                shapes[f"{name}.shortcut.weight"] = (width * 4, source, 1, 1)
                shapes |= _norm_shapes(f"{name}.shortcut_norm", width * 4)
            source = width * 4
        width *= 2
    return shapes | {"head.weight": (settings.classes, source), "head.bias": (settings.classes,)}


def _norm_shapes(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.{array}": (channels,) for array in ("weight", "bias", "running_mean", "running_var")}


def _fusion_shapes(name: str, fused: int) -> dict[str, tuple[int, ...]]:
    views = {"time": (3, 1, 1), "height": (1, 3, 1), "width": (1, 1, 3)}
    convolutions = {f"{name}.{view}.weight": (fused, 1, *kernel) for view, kernel in views.items()}
    return convolutions | _norm_shapes(f"{name}.norm", fused)


def draw_weights(settings: Settings) -> Arrays:
    """Returns the weights of `settings.start`; normalisations have mean 0 and variance 1 in both.

    flat: convolutions uniform in ±1/sqrt(fan_in) (where torch starts), head normal with standard deviation 0.01: the
    activations shrink with depth and the logits end near 0.
    lively: convolutions normal with He's standard deviation, each block adding a quarter of its result (norm3), head
    normal with standard deviation 0.03: activations keep their size through the depth, as in a trained network.
    """
    rng = np.random.default_rng(settings.weight_seed)
    lively = settings.start == "lively"
    drawn: Arrays = {}
    for name, shape in weight_shapes(settings).items():
        fan_in = float(np.prod(shape[1:]))
        if name == "head.weight":
            values = rng.standard_normal(shape) * (0.03 if lively else 0.01)
        elif "norm" in name and name.endswith((".weight", ".running_var")):
            values = np.full(shape, 0.25 if lively and name.endswith("norm3.weight") else 1.0)
        elif name.endswith((".bias", ".running_mean")):
            values = np.zeros(shape)
        elif lively:
            values = rng.standard_normal(shape) * (2 / fan_in) ** 0.5
        else:
            values = rng.uniform(-1, 1, shape) * fan_in**-0.5
        drawn[name] = values.astype(np.float32)
    if lively:
        drawn["norm1.weight"] *= np.float32(settings.stem_gain)
    return drawn


def load_weights(settings: Settings) -> Arrays:
    """Returns the weights in torch's layout, drawn and saved if they are not there."""
    path = settings.inputs_folder / "weights.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed: two sides started together must not read a half-written file.
        partial = path.with_name(f"{os.getpid()}-{path.name}")
        np.savez(partial, **draw_weights(settings))
        partial.replace(path)
    return dict(np.load(path))


def without_last_time_view(weights: Arrays) -> Arrays:
    """Returns the weights with the last fusion's convolution over time set to 0: a planted mistake."""
    name = "stages.3.2.fusion.time.weight"
    return {**weights, name: np.zeros_like(weights[name])}


def hashes(arrays: Arrays) -> dict[str, str]:
    """Returns the hash of each array, to say in a record what a run was fed with."""
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}


if __name__ == "__main__":
    chosen = read_settings(__doc__)
    weights = load_weights(chosen)
    for key, digest in hashes(weights).items():
        print(f"{digest[:16]}  {key} {weights[key].dtype} {weights[key].shape}")
    trained = sum(array.size for key, array in weights.items() if "running" not in key)
    print(f"{chosen.inputs_folder}: {trained:,} parameters")
