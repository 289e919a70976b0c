"""How much longer a training step takes while it is recorded, as a ratio to the plain step in the same run.

    python benchmarks/capture_overhead.py [--rounds 5] [--steps 4]

Each round runs every mode once, in turn, so that a busy machine disturbs all of them alike; the fastest step of
each mode counts. CPU time is what the process itself used (one thread), wall time includes waiting for
the disk and for other processes. `forward + backward` leaves out parameters, updates and optimizer state, which is
what tools that only hook modules record.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reprod_log.capture import watch

HOOKED = ["data", "forward", "loss", "backward", "gradient"]


class Transformer(nn.Module):
    def __init__(self, width: int = 256, depth: int = 4, words: int = 2000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        widths = (width, 2 * width, 4 * width)
        blocks = []
        for before, after in zip((width, *widths), widths, strict=False):
            blocks += [Block(before, after, 1 if before == after else 2), Block(after, after, 1)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], int]] = {
    "transformer": (Transformer, lambda: torch.randint(0, 2000, (16, 64)), 2000),
    "resnet": (ResNet, lambda: torch.randn(16, 3, 32, 32), 100),
}

MODES: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "summary, forward + backward": {"detail": "summary", "phases": HOOKED},
    "summary, everything": {"detail": "summary"},
    "full, forward + backward, memory": {"phases": HOOKED},
    "full, forward + backward, disk": {"phases": HOOKED, "save": True},
    "full, everything, memory": {},
    "full, everything, disk": {"save": True},
}


def time_steps(name: str, mode: dict[str, Any] | None, steps: int, folder: Path) -> tuple[float, float]:
    """CPU and wall seconds of the fastest step; entering and leaving the block are not counted, nor the first step."""
    torch.manual_seed(0)
    build, batch, classes = MODELS[name]
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = [(batch(), torch.randint(0, classes, (16,))) for _ in range(steps + 1)]
    options = dict(mode or {})
    if options.pop("save", False):
        options["save"] = folder / "recording"
    watched: AbstractContextManager[Any] = nullcontext()
    if mode is not None:
        watched = watch(model, optimizer=optimizer, inputs=False, **options)
    with watched as run:
        times = []
        for x, y in data:
            start = time.process_time(), time.perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if run is not None:
                # What is recorded at the end of a step belongs to its cost.
                run.end_step()
            times.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    shutil.rmtree(folder / "recording", ignore_errors=True)
    return min(cpu for cpu, _ in times[1:]), min(wall for _, wall in times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounds: list[dict[tuple[str, str], tuple[float, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            times = {}
            for name in MODELS:
                for title, mode in MODES.items():
                    times[name, title] = time_steps(name, mode, options.steps, Path(folder))
            rounds.append(times)
    print(f"torch {torch.__version__}, 1 thread, {options.rounds} rounds of {options.steps} steps")
    print(f"{'':34}" + "".join(f"{f'{name}: CPU':>18}{'wall':>8}" for name in MODELS))
    for title in MODES:
        cells = ""
        for name in MODELS:
            for clock, width in ((0, 18), (1, 8)):
                fastest = min(one[name, title][clock] for one in rounds)
                plain = min(one[name, "plain"][clock] for one in rounds)
                cells += f"{fastest * 1000:{width - 3}.0f} ms" if title == "plain" else f"{fastest / plain:{width}.2f}"
        print(f"{title:34}{cells}")


if __name__ == "__main__":
    main()
