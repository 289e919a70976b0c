"""A short run of the harness that kills trainings and has their recordings fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_killed_trainings_and_failing_recordings_do_no_harm(framework: str) -> None:
    # A process of its own: it forks, which this one, with the threads of its tests, should not.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "trust.harm", "--framework", framework, "--kills", "6", "--faults", "6"],
        capture_output=True, text=True, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 steps lost; 0 trainings ended by us; 0 trainings with other numbers; 0 wrong verdicts" in done.stdout
