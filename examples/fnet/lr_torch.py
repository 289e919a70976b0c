"""The learning rates of the three schedules in torch, saved as scheduler_torch.npy."""

from __future__ import annotations

import numpy as np
from recipe_torch import build_optimizer, build_scheduler
from settings import MILESTONES, ROOT, SCHEDULES, SMALL
from torch import nn

from reprod_log import ReprodLogger


def main() -> None:
    logger = ReprodLogger()
    every_step: dict[str, list[float]] = {}
    for schedule in SCHEDULES:
        # A schedule needs an optimizer and an optimizer a parameter; which one does not matter.
        optimizer = build_optimizer(nn.Linear(1, 1), SMALL)
        scheduler = build_scheduler(optimizer, schedule, SMALL, num_cycles=SMALL.num_cycles)
        rates = every_step[schedule] = []
        for step in range(SMALL.total_steps):
            optimizer.step()
            scheduler.step()
            rates.append(optimizer.param_groups[0]["lr"])
            if step in MILESTONES:
                logger.add(f"step_{step}_{schedule}_lr", np.array(rates[-1:]))
    logger.save(str(ROOT / "scheduler_torch.npy"))
    np.savez(ROOT / "every_step_torch.npz", **every_step)


if __name__ == "__main__":
    main()
