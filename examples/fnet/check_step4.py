"""Trains ten iterations on each side and compares the losses; the report is bp_align_diff.log.

Each framework runs in a process of its own; this one imports neither.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from settings import ROOT, add_flags

from reprod_log import ReprodDiffHelper


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    parser.add_argument(
        "--as-published", action="store_true", help="fill the paddle losses by running torch a second time, old AdamW"
    )
    parser.add_argument("--legacy-adamw", action="store_true", help="old AdamW in torch against paddle's own, for real")
    flags = parser.parse_args()

    passed_on = [flag for flag in sys.argv[1:] if flag not in ("--as-published", "--legacy-adamw")]
    legacy = ["--legacy-adamw"] if flags.as_published or flags.legacy_adamw else []
    run("train_torch.py", *passed_on, *legacy)
    if flags.as_published:
        run("train_torch.py", *passed_on, *legacy, "--output", "bp_align_paddle.npy")
    else:
        run("train_paddle.py", *passed_on)

    helper = ReprodDiffHelper()
    torch_info = helper.load_info(str(ROOT / "bp_align_torch.npy"))
    paddle_info = helper.load_info(str(ROOT / "bp_align_paddle.npy"))
    helper.compare_info(torch_info, paddle_info)
    result = helper.report(diff_method="mean", diff_threshold=1e-6, path=str(ROOT / "bp_align_diff.log"))
    return 0 if result else 1


def run(script: str, *flags: str) -> None:
    """Runs a script of this folder in a new process; stops if it fails."""
    subprocess.run([sys.executable, ROOT / script, *flags], check=True)


if __name__ == "__main__":
    sys.exit(main())
