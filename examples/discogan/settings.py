"""The numbers of the DiscoGAN reproduction, the same for torch, paddle and the check."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Settings:
    """Everything both sides must agree on; `SMALL` and `FULL` are the two sizes."""

    size: str
    # Channels of the first convolution; the next three have 2, 4 and 8 times as many.
    width: int

    batch: int = 4
    image_size: int = 64
    seed_a: int = 42
    seed_b: int = 100
    weight_seed: int = 0
    dtype: str = "float32"

    iterations: int = 5
    lr: float = 2e-4
    betas: tuple[float, float] = (0.5, 0.999)
    weight_decay: float = 1e-5

    # gen_loss = (gan * gan_share + features * feature_share) * (1 - rate) + reconstruction * rate, both ways summed.
    gan_share: float = 0.1
    feature_share: float = 0.9
    rate: float = 0.01

    @property
    def inputs_folder(self) -> Path:
        """The folder of the made data and weights: one per size, so that they never mix."""
        return ROOT / "inputs" / self.size


SMALL = Settings(size="small", width=32)
FULL = Settings(size="full", width=64)

NETWORKS = ("generator_A", "generator_B", "discriminator_A", "discriminator_B")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that every script of this example understands."""
    parser.add_argument("--full", action="store_true", help="the real width (64 channels in the first convolution)")
    parser.add_argument("--float64", action="store_true", help="compute in double precision")
    parser.add_argument("--iterations", type=int, help="number of iterations (5)")


def from_flags(flags: argparse.Namespace) -> Settings:
    """Returns the settings that the parsed flags ask for."""
    settings = FULL if flags.full else SMALL
    if flags.float64:
        settings = replace(settings, dtype="float64")
    if flags.iterations is not None:
        settings = replace(settings, iterations=flags.iterations)
    return settings


def read_settings(description: str | None) -> Settings:
    """Returns the settings asked for on the command line of a script without flags of its own."""
    parser = argparse.ArgumentParser(description=description)
    add_flags(parser)
    return from_flags(parser.parse_args())
