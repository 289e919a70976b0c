"""The numbers of the FNet reproduction, the same for torch, paddle and the checks."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent

MILESTONES = (100, 300, 500, 700, 900)
SCHEDULES = ("linear", "cosine", "polynomial")


@dataclass(frozen=True)
class Settings:
    """Everything both sides must agree on; `SMALL` and `FULL` are the two sizes."""

    size: str
    hidden: int
    layers: int
    feed_forward: int

    vocabulary: int = 32000
    positions: int = 512
    token_types: int = 4
    padding_id: int = 3
    norm_eps: float = 1e-12
    dropout: float = 0.1
    classes: int = 2
    dtype: str = "float32"

    # Fake data: the ids were drawn for BERT's vocabulary of 30522, which lies inside FNet's.
    batch: int = 4
    length: int = 64
    id_limit: int = 30522
    data_seed: int = 0
    body_seed: int = 0
    classifier_seed: int = 42

    # Backward step.
    iterations: int = 10
    lr: float = 3e-5
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 1e-2

    # Learning-rate check.
    warmup_steps: int = 345
    total_steps: int = 1024
    num_cycles: float = 0.5
    power: float = 1.0
    end_lr: float = 1e-7

    @property
    def suffix(self) -> str:
        """What the names of the weight files end with, so that the two sizes never mix."""
        return "_full" if self.size == "full" else ""


SMALL = Settings(size="small", hidden=64, layers=3, feed_forward=256)
FULL = Settings(size="full", hidden=768, layers=12, feed_forward=3072)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that every script of this example understands."""
    parser.add_argument("--full", action="store_true", help="FNet-base (82,862,594 parameters)")
    parser.add_argument("--float64", action="store_true", help="compute in double precision")
    parser.add_argument("--iterations", type=int, help="backward step: number of iterations (10)")


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


def takes_decay(name: str) -> bool:
    """Says whether weight decay applies to the parameter: not to biases and not to normalisations."""
    return not name.endswith("bias") and "norm" not in name
