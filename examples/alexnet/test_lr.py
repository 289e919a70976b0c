"""Compares the learning rates of 90 epochs; the report is lr_diff.log.

Each framework writes its rates in a process of its own; this one imports neither.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from reprod_log import ReprodDiffHelper

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--never-step", action="store_true", help="do not step the schedulers: 90 times the first rate")
    parser.add_argument("--as-published", action="store_true", help="never step; shapes (90, 1) and (90,)")
    parser.parse_args()

    for side in ("torch", "paddle"):
        subprocess.run([sys.executable, HERE / f"AlexNet_{side}" / "lr.py", *sys.argv[1:]], check=True)
    helper = ReprodDiffHelper()
    torch_info = helper.load_info(str(HERE / "AlexNet_torch" / "lr_torch.npy"))
    paddle_info = helper.load_info(str(HERE / "AlexNet_paddle" / "lr_paddle.npy"))
    helper.compare_info(torch_info, paddle_info)
    result = helper.report(diff_method="mean", diff_threshold=1e-6, path=str(HERE / "lr_diff.log"))
    return 0 if result else 1


if __name__ == "__main__":
    sys.exit(main())
