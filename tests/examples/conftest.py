"""Runs the scripts of an example as a user would: in processes of their own, in a copy of its folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRIPWIRE = Path(__file__).with_name("tripwire.py")
STAMP = r"\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\] root INFO: "


@dataclass(frozen=True)
class Log:
    """A classic log taken apart: the difference and the outcome of each key, and the last line."""

    differences: dict[str, float]
    outcomes: dict[str, bool]
    verdict: str

    @classmethod
    def read(cls, path: Path) -> Log:
        """Returns the log's content; a line that is not in the classic form is an error."""
        differences: dict[str, float] = {}
        outcomes: dict[str, bool] = {}
        *lines, last = path.read_text().splitlines()
        key = ""
        for line in lines:
            if head := re.fullmatch(STAMP + r"(\w+): ", line):
                key = head[1]
            elif value := re.fullmatch(STAMP + r"\tmean diff: check passed: (True|False), value: (\S+)", line):
                outcomes[key], differences[key] = value[1] == "True", float(value[2])
            else:
                assert re.fullmatch(STAMP + r"\t?note: .+", line), line
        verdict = re.fullmatch(STAMP + r"(diff check (?:passed|failed))", last)
        assert verdict, last
        return cls(differences, outcomes, verdict[1])


@dataclass(frozen=True)
class Example:
    """A copy of an example's folder."""

    folder: Path

    def run(self, *command: str, cwd: str = ".", exit_code: int = 0) -> str:
        """Runs a shell command such as `sh train.sh` in the folder and returns what it printed."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        # The scripts say `python`, and mean this one.
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(
            command, cwd=self.folder / cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == exit_code, f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def torch(self, *command: str) -> str:
        """Runs a torch script that fails if it imports paddle."""
        return self._guarded("paddle", *command)

    def paddle(self, *command: str) -> str:
        """Runs a paddle script that fails if it imports torch."""
        return self._guarded("torch", *command)

    def check(self, *command: str, exit_code: int = 0) -> str:
        """Runs a check script that fails if it imports either framework itself."""
        return self._guarded("torch,paddle", *command, exit_code=exit_code)

    def log(self, path: str) -> Log:
        """Returns a classic log taken apart."""
        return Log.read(self.folder / path)

    def _guarded(self, forbidden: str, *command: str, exit_code: int = 0) -> str:
        return self.run(sys.executable, str(TRIPWIRE), forbidden, *command, exit_code=exit_code)


@pytest.fixture(scope="session")
def copy_example(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Example]:
    """Returns a function that copies an example without what earlier runs left in it."""

    def copy(name: str) -> Example:
        target = tmp_path_factory.mktemp("examples") / name
        made = shutil.ignore_patterns("__pycache__", "inputs", "data", "fakedata-*", "*.npy", "*.npz", "*.log")
        return Example(Path(shutil.copytree(EXAMPLES / name, target, ignore=made)))

    return copy
