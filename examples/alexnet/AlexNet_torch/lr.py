"""The learning rate that torch's optimizer uses in each of the 90 epochs, saved as lr_torch.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import argparse

import numpy as np
from recipe_torch import build_optimizer, build_scheduler
from settings import add_flags, from_flags
from torch import nn

from reprod_log import ReprodLogger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    parser.add_argument("--never-step", action="store_true", help="do not step the scheduler")
    parser.add_argument("--as-published", action="store_true", help="never step, and keep the list that torch returns")
    flags = parser.parse_args()
    settings = from_flags(flags)

    # A schedule needs an optimizer and an optimizer a parameter; which one does not matter.
    optimizer = build_optimizer(nn.Linear(1, 1), settings, lr=settings.lr_start)
    scheduler = build_scheduler(optimizer, settings)
    rates: list[float | list[float]] = []
    for _ in range(settings.lr_epochs):
        rates.append(scheduler.get_last_lr() if flags.as_published else optimizer.param_groups[0]["lr"])
        if not (flags.never_step or flags.as_published):
            optimizer.step()
            scheduler.step()
    logger = ReprodLogger()
    logger.add("lr", np.array(rates))
    logger.save(str(Path(__file__).with_name("lr_torch.npy")))


if __name__ == "__main__":
    main()
