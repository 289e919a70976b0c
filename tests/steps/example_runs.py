"""Runs the plan of an example as a user would: torch in one process, paddle in another, a third imports neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from reprod_log import Alignment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# The comparing process fails if it imports a framework.
GUARDED = """
import sys

class Tripwire:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "paddle"):
            raise ImportError(f"{name} must not be imported here")

sys.meta_path.insert(0, Tripwire())
from reprod_log.cli import run
sys.exit(run(sys.argv[1:]))
"""


def align_example(name: str, folder: Path, *flags: str, code: int) -> dict[str, Alignment]:
    """The alignments of an example's plan by step, run as a user would run it."""
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, "align", str(EXAMPLES / name / "plan.py"), "-o", str(folder), *flags],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    for recording in folder.rglob("*.safetensors"):
        # Nobody looks at them any more, and temporary folders are kept for a while.
        recording.unlink()
    told = json.loads((folder / "plan.json").read_text())["steps"]
    return {step["name"]: Alignment.load(folder / step["alignment"]) for step in told}


def cause(alignment: Alignment) -> str:
    return str(alignment.findings[0].cause) if alignment.findings else ""
