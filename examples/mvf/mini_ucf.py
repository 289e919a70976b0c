"""A mini data set made by code, in place of the videos of UCF that cannot be had here.

`python mini_ucf.py --dataset_root test_tipc/data/mini_ucf` makes it; the two val scripts make it themselves when it is
missing. A clip is one .npy file of uint8 frames (segments, height, width, 3): a coloured square that moves over a
coloured ground. A list file names the clips and their labels.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from settings import ROOT, Settings, add_flags, from_flags


def make_clip(rng: np.random.Generator, settings: Settings) -> np.ndarray:
    """Returns one clip: ground and square in random colours, the square moving one way at a random speed."""
    size, side = settings.image_size, settings.image_size // 4
    ground, square = rng.integers(0, 256, (2, 3))
    start = rng.integers(0, size - side, 2)
    speed = rng.integers(1, side, 2)
    frames = np.empty((settings.segments, size, size, 3), np.uint8)
    for index in range(settings.segments):
        top, left = (start + index * speed) % (size - side)
        frames[index] = ground
        frames[index, top : top + side, left : left + side] = square
    return frames


def make_mini_ucf(root: Path, settings: Settings) -> None:
    """Writes the clips and the list file of this size and start."""
    folder = root / settings.size
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(settings.data_seed + 1)
    lines = []
    for index in range(settings.clips):
        np.save(folder / f"clip_{index}.npy", make_clip(rng, settings))
        # Every second label is the class this random model favours. With random labels both accuracies would be exactly
        # 0 on both sides whatever the port does.
        label = settings.favoured_class[settings.start] if index % 2 == 0 else int(rng.integers(0, settings.classes))
        lines.append(f"clip_{index}.npy {label}\n")
    _list_file(root, settings).write_text("".join(lines))


def load_mini_ucf(root: Path, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Returns the clips as they are stored (uint8) and their labels; makes the data set if it is not there."""
    list_file = _list_file(root, settings)
    if not list_file.exists():
        make_mini_ucf(root, settings)
    rows = [line.split() for line in list_file.read_text().splitlines()]
    clips = np.stack([np.load(list_file.parent / name) for name, _ in rows])
    return clips, np.array([int(label) for _, label in rows], dtype=np.int64)


def _list_file(root: Path, settings: Settings) -> Path:
    return root / settings.size / f"val_{settings.start}.txt"


def add_dataset_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --dataset_root, spelled as in the published commands."""
    parser.add_argument("--dataset_root", type=Path, default=ROOT / "test_tipc" / "data" / "mini_ucf")


if __name__ == "__main__":
    command = argparse.ArgumentParser(description=__doc__)
    add_flags(command)
    add_dataset_flag(command)
    chosen = command.parse_args()
    make_mini_ucf(chosen.dataset_root, from_flags(chosen))
