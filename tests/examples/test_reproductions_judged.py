"""The hard cases of the reproductions: what a fixed limit fails is said to be rounding, and a mistake is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "rounding_or_defect.py"


@pytest.mark.parametrize(
    ("case", "code", "said"),
    [
        # Whether rounding exceeds a fixed limit here depends on the kernels that a processor gets.
        pytest.param(
            "alexnet",
            0,
            ("a fixed limit of 1e-6 says", "the rule says: aligned, rounding"),
            marks=pytest.mark.whole,
        ),
        ("num_cycles", 1, ("the rule says: a defect", "num_cycles")),
    ],
)
def test_case_is_judged_and_explained(case: str, code: int, said: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), case],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == code, done.stderr
    for words in said:
        assert words in done.stdout
