"""One process that times one tool: reads "MODEL MODE STEPS" lines of JSON, answers with times and bytes per step."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from capture_models import Training
from capture_tools import TOOLS


def measure(folder: Path, tool: str, model: str, mode: str, steps: int) -> dict[str, Any]:
    """CPU and wall seconds of the fastest step, and bytes on disk per step; the first step is not timed."""
    try:
        training = Training(model, steps + 1)
        times = []
        with TOOLS[tool][mode](training, folder) as step:
            for x, y in training.data:
                start = time.process_time(), time.perf_counter()
                step(x, y)
                times.append((time.process_time() - start[0], time.perf_counter() - start[1]))
        saved = folder / "recording"
        size = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file()) if saved.exists() else 0
        return {
            "cpu": min(cpu for cpu, _ in times[1:]),
            "wall": min(wall for _, wall in times[1:]),
            "bytes": size / (steps + 1),
        }
    finally:
        shutil.rmtree(folder / "recording", ignore_errors=True)


def main() -> None:
    torch.set_num_threads(1)
    # Tools print; only answers go to the driver.
    answers, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=answers, flush=True)
    # One folder for all rounds: msprobe keeps to the one that it was first given.
    with tempfile.TemporaryDirectory(prefix="reprod-bench-") as folder:
        for line in sys.stdin:
            print(json.dumps(measure(Path(folder), **json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
