"""Shared dropout masks: no two frameworks draw the same random numbers, so both are given the same ones.

Masks are drawn once by numpy from the seed, the step and the place of the call; every run of every side, in any
precision, gets the same. A mask of another shape at the same place is another program, and shows as a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from reprod_log.experiments.program import Program
from reprod_log.layers.lookup import layer_kind


class Masks:
    """Counts the dropout calls of a step and gives each its mask."""

    def __init__(self, seed: int) -> None:
        self.seed, self.step, self.call = seed, 0, 0

    def next_step(self) -> None:
        self.step, self.call = self.step + 1, 0

    def draw(self, shape: tuple[int, ...], rate: float) -> Any:
        generator = np.random.default_rng((self.seed, self.step, self.call))
        self.call += 1
        kept = generator.random(shape) >= rate
        return kept / (1.0 - rate) if rate < 1 else np.zeros(shape)


@contextmanager
def shared_masks(program: Program, model: Any, masks: Masks) -> Iterator[None]:
    """While it lasts, every Dropout module in training mode multiplies its input by the next shared mask."""
    hands = program.hands

    def attach(module: Any, undo: ExitStack) -> None:
        def replace(_: Any, inputs: tuple[Any, ...], output: Any) -> Any:
            rate = float(getattr(module, "p", 0.0))
            if not program.framework.is_training(module) or rate == 0.0:
                return output
            shape = tuple(int(size) for size in inputs[0].shape)
            mask = masks.draw(shape, rate)
            if getattr(module, "mode", "") == "downscale_in_infer":
                # paddle's other way: training drops values only, evaluation scales them down.
                mask = mask * (1.0 - rate)
            return hands.multiply(inputs[0], mask)

        undo.callback(module.register_forward_hook(replace).remove)

    with ExitStack() as undo:
        seen: set[int] = set()
        for _, module in program.modules(model):
            if _draws(program.framework.kind(module)) and id(module) not in seen:
                seen.add(id(module))
                attach(module, undo)
        yield


def _draws(kind: str) -> bool:
    row = layer_kind(kind)
    return row is not None and row.random
