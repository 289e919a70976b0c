"""Runs a script in this process with some modules forbidden: python tripwire.py torch,paddle script.py [flags].

Processes that the script starts are not watched.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


class Tripwire:
    """Refuses to find the forbidden modules."""

    def __init__(self, forbidden: list[str]) -> None:
        self.forbidden = forbidden

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] in self.forbidden:
            raise ImportError(f"{name} must not be imported here")


if __name__ == "__main__":
    _, names, script, *flags = sys.argv
    sys.meta_path.insert(0, Tripwire(names.split(",")))  # type: ignore[arg-type]
    sys.argv = [script, *flags]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")
