"""The numbers of the MVF reproduction, the same for torch, paddle and the checks."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Settings:
    """Everything both sides must agree on; `SMALL` and `FULL` are the two sizes."""

    size: str
    # Channels of the first convolution; a stage's blocks give 4, 8, 16 and 32 times as many.
    width: int
    segments: int
    image_size: int
    # The class this random model names most often on the mini data set, by start: see mini_ucf.py.
    favoured_class: Mapping[str, int]
    # The lively start scales the first normalisation by this. The wider network takes longer steps at the same learning
    # rate, and rounding grows with them; scaled down it stays calmer.
    stem_gain: float

    batch: int = 2
    blocks: tuple[int, int, int, int] = (3, 4, 6, 3)
    # Fusion works in stages 3 and 4, on this share of the channels.
    fused_stages: tuple[int, ...] = (3, 4)
    alpha: float = 0.125
    classes: int = 400
    dropout: float = 0.5
    data_seed: int = 0
    weight_seed: int = 0
    # How the weights start: "lively" gives logits of size 1, "flat" the published ones near 0.
    start: str = "lively"
    dtype: str = "float32"

    iterations: int = 5
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 5e-4

    # Metric step.
    clips: int = 8
    pixel_mean: tuple[float, float, float] = (123.675, 116.28, 103.53)
    pixel_std: tuple[float, float, float] = (58.395, 57.12, 57.375)

    @property
    def inputs_folder(self) -> Path:
        """The folder of the made weights: one per size and start, so that they never mix."""
        return ROOT / "inputs" / f"{self.size}-{self.start}"


SMALL = Settings(
    size="small", width=16, segments=4, image_size=64, favoured_class={"lively": 231, "flat": 269}, stem_gain=1.0
)
FULL = Settings(
    size="full", width=64, segments=16, image_size=224, favoured_class={"lively": 232, "flat": 362}, stem_gain=0.15
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that every script of this example understands."""
    parser.add_argument("--full", action="store_true", help="the real size (24,342,416 parameters, 16 segments)")
    parser.add_argument("--float64", action="store_true", help="compute in double precision")
    parser.add_argument("--as-published", action="store_true", help="start as published: logits near 0, a flat loss")


def from_flags(flags: argparse.Namespace) -> Settings:
    """Returns the settings that the parsed flags ask for."""
    settings = FULL if flags.full else SMALL
    if flags.float64:
        settings = replace(settings, dtype="float64")
    if flags.as_published:
        settings = replace(settings, start="flat")
    return settings


def read_settings(description: str | None) -> Settings:
    """Returns the settings asked for on the command line of a script without flags of its own."""
    parser = argparse.ArgumentParser(description=description)
    add_flags(parser)
    return from_flags(parser.parse_args())
