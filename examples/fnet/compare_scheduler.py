"""Compares the three learning-rate schedules at five steps; the report is scheduler_diff.log.

Each framework writes its rates in a process of its own; this one imports neither. After the report it prints the worst
difference over all 1024 steps, which the five steps cannot show.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import numpy as np
from settings import ROOT, SCHEDULES

from reprod_log import ReprodDiffHelper


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as-published", action="store_true", help="cosine with num_cycles 0.5 and 1")
    flags = parser.parse_args()

    subprocess.run([sys.executable, ROOT / "lr_torch.py"], check=True)
    paddle_flags = ["--as-published"] if flags.as_published else []
    subprocess.run([sys.executable, ROOT / "lr_paddle.py", *paddle_flags], check=True)

    helper = ReprodDiffHelper()
    torch_info = helper.load_info(str(ROOT / "scheduler_torch.npy"))
    paddle_info = helper.load_info(str(ROOT / "scheduler_paddle.npy"))
    helper.compare_info(torch_info, paddle_info)
    result = helper.report(diff_method="mean", diff_threshold=1e-6, path=str(ROOT / "scheduler_diff.log"))
    print_worst_steps()
    return 0 if result else 1


def print_worst_steps() -> None:
    """Prints for each schedule the greatest difference over all steps, and its share of the greater rate."""
    torch_rates = np.load(ROOT / "every_step_torch.npz")
    paddle_rates = np.load(ROOT / "every_step_paddle.npz")
    for schedule in SCHEDULES:
        reference, candidate = torch_rates[schedule], paddle_rates[schedule]
        difference = np.abs(reference - candidate)
        # The last rate of a schedule that ends at 0 is 0 on both sides: no share to speak of.
        share = difference / np.maximum(np.maximum(reference, candidate), np.finfo(float).tiny)
        print(
            f"{schedule}: over all {len(reference)} steps at most {difference.max():.3e} (step {difference.argmax()}), "
            f"at most {share.max():.2%} of the rate (step {share.argmax()})"
        )


if __name__ == "__main__":
    sys.exit(main())
