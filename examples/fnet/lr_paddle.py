"""The learning rates of the three schedules in paddle, saved as scheduler_paddle.npy."""

from __future__ import annotations

import argparse

import numpy as np
from paddle import nn
from paddle.optimizer import AdamW
from recipe_paddle import build_scheduler
from settings import MILESTONES, ROOT, SCHEDULES, SMALL

from reprod_log import ReprodLogger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as-published", action="store_true", help="cosine with num_cycles 1")
    flags = parser.parse_args()
    num_cycles = 1.0 if flags.as_published else SMALL.num_cycles

    logger = ReprodLogger()
    every_step: dict[str, list[float]] = {}
    for schedule in SCHEDULES:
        scheduler = build_scheduler(schedule, SMALL, num_cycles=num_cycles)
        optimizer = AdamW(learning_rate=scheduler, parameters=nn.Linear(1, 1).parameters())
        rates = every_step[schedule] = []
        for step in range(SMALL.total_steps):
            scheduler.step()
            # The optimizer's answer is the rate it will use; the scheduler's get_lr() computes a new one at each call.
            rates.append(optimizer.get_lr())
            if step in MILESTONES:
                logger.add(f"step_{step}_{schedule}_lr", np.array(rates[-1:]))
    logger.save(str(ROOT / "scheduler_paddle.npy"))
    np.savez(ROOT / "every_step_paddle.npz", **every_step)


if __name__ == "__main__":
    main()
