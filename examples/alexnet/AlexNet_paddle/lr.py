"""The learning rate that paddle's optimizer uses in each of the 90 epochs, saved as lr_paddle.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import argparse

import numpy as np
from paddle import nn
from recipe_paddle import build_optimizer, build_scheduler
from settings import add_flags, from_flags

from reprod_log import ReprodLogger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    parser.add_argument("--never-step", action="store_true", help="do not step the scheduler")
    parser.add_argument("--as-published", action="store_true", help="never step, and ask the scheduler itself")
    flags = parser.parse_args()
    settings = from_flags(flags)

    scheduler = build_scheduler(settings)
    optimizer = build_optimizer(nn.Linear(1, 1), settings, lr=scheduler)
    rates: list[float] = []
    for _ in range(settings.lr_epochs):
        # The optimizer's answer is the rate it will use; the scheduler's get_lr() computes a new one at each call.
        rates.append(scheduler.get_lr() if flags.as_published else optimizer.get_lr())
        if not (flags.never_step or flags.as_published):
            scheduler.step()
    logger = ReprodLogger()
    logger.add("lr", np.array(rates))
    logger.save(str(Path(__file__).with_name("lr_paddle.npy")))


if __name__ == "__main__":
    main()
