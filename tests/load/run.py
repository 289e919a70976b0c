"""Runs the cases of load at full size and prints what each took (`make load`).

python tests/load/run.py            all of them; 16 GB of files with holes, which take no room on most disks
python tests/load/run.py threads    one of them
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from load import cases

FULL: dict[str, Callable[[Path], cases.Figures]] = {
    "entries": lambda folder: cases.many_entries(folder, 100_000, steps=100),
    "steps": lambda folder: cases.many_entries(folder, 20_000, steps=1000),
    "large": lambda folder: cases.one_large_entry(folder, 8 << 30),
    "growing": lambda folder: cases.read_while_it_grows(folder, 1000),
    "threads": lambda folder: cases.threads_on_one_logger(folder, 64, 1000),
}


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        name = sys.argv[2]
        with tempfile.TemporaryDirectory() as folder:
            figures = FULL[name](Path(folder))
        parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in figures.seconds.items())
        print(f"{name:8} {parts}; memory {figures.memory:.0f} MB", flush=True)
        return
    # Each in a process of its own: memory that an earlier case has given back would hide what a later one takes.
    for name in sys.argv[1:] or FULL:
        subprocess.run([sys.executable, __file__, "--one", name], check=True)


if __name__ == "__main__":
    main()
