"""A script recorded again: by commands that hold one program against itself after something has changed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from reprod_log.errors import UsageError


@dataclass(frozen=True)
class Script:
    """A script with its arguments, and how it is recorded."""

    path: Path
    arguments: tuple[str, ...] = ()
    float64: bool = True
    detail: str = "full"
    language: str = "en"

    def __post_init__(self) -> None:
        if not self.path.is_file():
            raise UsageError(f"{self.path} is not a file; give the script to record, then its arguments")

    def record(self, output: Path, *, python: str = sys.executable, folder: Path | None = None) -> int:
        """Record in a process of its own, so that every module is read again; its exit code.

        `folder` is where it runs, if not here. What the script prints is not shown; its errors are.
        """
        options = ["--float64"] if self.float64 else []
        options += ["--detail", self.detail, "--language", self.language, "-o", str(output.resolve())]
        apart = ["--"] if any(one.startswith("-") for one in self.arguments) else []
        line = [python, "-m", "reprod_log", "run", *options, str(self.path), *apart, *self.arguments]
        return subprocess.run(line, cwd=folder, stdout=subprocess.DEVNULL, check=False).returncode
