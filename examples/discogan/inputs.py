"""Fake pictures and weights, drawn once with seeded numpy and read by both sides.

`python inputs.py [--full]` makes the files and prints their hashes; every script makes them itself when
they are missing.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
from settings import NETWORKS, Settings, read_settings

Arrays = dict[str, np.ndarray]


def gen_fake_data(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Returns normal noise of the given shape; the old numpy generator, so that the numbers are the published ones."""
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def generator_shapes(width: int) -> dict[str, tuple[int, ...]]:
    """Returns name and shape of a generator's parameters and buffers, in torch's layout."""
    shapes: dict[str, tuple[int, ...]] = {}
    channels = (3, width, 2 * width, 4 * width, 8 * width)
    for index in range(1, 5):
        shapes[f"down{index}.weight"] = (channels[index], channels[index - 1], 4, 4)
        if index > 1:
            shapes |= batch_norm_shapes(f"down_norm{index}", channels[index])
    for index in range(1, 5):
        source, target = channels[5 - index], channels[4 - index]
        # A transposed convolution keeps its input channels first.
        shapes[f"up{index}.weight"] = (source, target, 4, 4)
        if index < 4:
            shapes |= batch_norm_shapes(f"up_norm{index}", target)
    return shapes


def discriminator_shapes(width: int) -> dict[str, tuple[int, ...]]:
    """Returns name and shape of a discriminator's parameters and buffers, in torch's layout."""
    shapes: dict[str, tuple[int, ...]] = {}
    channels = (3, width, 2 * width, 4 * width, 8 * width)
    for index in range(1, 5):
        shapes[f"conv{index}.weight"] = (channels[index], channels[index - 1], 4, 4)
        if index > 1:
            shapes |= batch_norm_shapes(f"norm{index}", channels[index])
    shapes["conv5.weight"] = (1, channels[4], 4, 4)
    return shapes


def batch_norm_shapes(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    """Returns the four arrays of a batch normalisation."""
    return {f"{name}.{array}": (channels,) for array in ("weight", "bias", "running_mean", "running_var")}


def draw_weights(settings: Settings) -> Arrays:
    """Returns all four networks' weights under generator_A/down1.weight and so on.

    Convolutions are uniform in ±1/sqrt(fan_in), the distribution torch starts from; batch normalisations are neutral.
    """
    rng = np.random.default_rng(settings.weight_seed)
    drawn: Arrays = {}
    for network in NETWORKS:
        shapes = generator_shapes(settings.width) if "gen" in network else discriminator_shapes(settings.width)
        for name, shape in shapes.items():
            key = f"{network}/{name}"
            if "norm" in name:
                one = name.endswith((".weight", ".running_var"))
                drawn[key] = np.full(shape, 1.0 if one else 0.0, np.float32)
            else:
                # torch counts the second axis as the fan-in of transposed convolutions too.
                bound = float(np.prod(shape[1:])) ** -0.5
                drawn[key] = rng.uniform(-bound, bound, shape).astype(np.float32)
    return drawn


def load_data(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Returns the fake pictures of domain A and of domain B, made and saved if they are not there."""
    path = settings.inputs_folder / "fake_data.npz"
    if not path.exists():
        shape = (settings.batch, 3, settings.image_size, settings.image_size)
        _save(path, {"A": gen_fake_data(settings.seed_a, shape), "B": gen_fake_data(settings.seed_b, shape)})
    data = np.load(path)
    return data["A"], data["B"]


def load_weights(settings: Settings) -> dict[str, Arrays]:
    """Returns each network's weights by its name, in torch's layout, drawn and saved if they are not there."""
    path = settings.inputs_folder / "weights.npz"
    if not path.exists():
        _save(path, draw_weights(settings))
    # A new dict for each network: the published converter filled one dict four times over (see --as-published).
    weights: dict[str, Arrays] = {network: {} for network in NETWORKS}
    for key, array in np.load(path).items():
        network, name = key.split("/")
        weights[network][name] = array
    return weights


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
    made = dict(zip(("A", "B"), load_data(chosen), strict=True))
    for network, arrays in load_weights(chosen).items():
        made |= {f"{network}/{name}": array for name, array in arrays.items()}
    for key, digest in hashes(made).items():
        print(f"{digest[:16]}  {key} {made[key].dtype} {made[key].shape}")
