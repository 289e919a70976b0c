"""How long it takes to start: import, the command's help, and a comparison of two small files.

    python benchmarks/startup.py

Times are the best of several new processes; what counts is the difference to `import numpy` in the same run.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from reprod_log import Recording

REPEATS = 9


def best(command: list[str]) -> float:
    """Seconds of the fastest of several runs, each in a process of its own."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arrays = {f"entry_{i}": np.random.default_rng(i).normal(size=(64, 64)) for i in range(100)}
        for name in ("a.npy", "b.npy"):
            Recording.from_arrays(arrays).save(Path(folder) / name)
        python = [sys.executable, "-c"]
        reprod = [sys.executable, "-m", "reprod_log"]
        rows = {
            "import numpy": best([*python, "import numpy"]),
            "import reprod_log": best([*python, "import reprod_log"]),
            "reprod --help": best([*reprod, "--help"]),
            "reprod compare, 2 × 100 entries": best([*reprod, "compare", f"{folder}/a.npy", f"{folder}/b.npy"]),
        }
    print(f"Python {platform.python_version()}, numpy {np.__version__}, best of {REPEATS}")
    for name, seconds in rows.items():
        print(f"{name:34} {seconds:6.3f} s   {seconds - rows['import numpy']:+.3f} s beside numpy")


if __name__ == "__main__":
    main()
