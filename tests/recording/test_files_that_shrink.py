"""A file that another process cuts short while it is mapped cannot be compared; this process goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CUT = """
import os, sys
from pathlib import Path
import numpy as np
from reprod_log import align, load
from reprod_log.recording import Recording, npy

npy.MAP_FROM = 1000
path, other = Path(sys.argv[1]), Path(sys.argv[2])
values = np.random.default_rng(0).standard_normal((2, 300_001)).astype(np.float32)
for place in (path, other):
    Recording.from_arrays({"a": values[0], "b": values[1]}).save(place)
recording = load(path)
assert recording["a"].array().any()
files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
os.truncate(max(files, key=lambda one: one.stat().st_size), 5000)
found = align(recording, other)
print(found.passed, *(row.incomparable for row in found.comparison.rows))
"""


@pytest.mark.parametrize("suffix", ["", ".npy", ".safetensors"])
def test_comparing_a_mapped_file_that_became_shorter_is_incomparable(tmp_path: Path, suffix: str) -> None:
    paths = [str(tmp_path / f"{name}{suffix}") for name in ("one", "two")]
    done = subprocess.run([sys.executable, "-c", CUT, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False ")
    assert "became shorter while it was being read" in done.stdout
