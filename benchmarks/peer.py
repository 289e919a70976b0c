"""reprod_log 1.0.1 in a virtual environment of its own, because it has the import name that ours has.

It imports paddle when it starts, which takes seconds and is not what is compared here; an empty module stands in.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).with_name(".peers")

# Put before every script that the peer runs.
START = """
import sys, types
class Anything(types.ModuleType):
    def __getattr__(self, name):
        return Anything(name)
sys.modules["paddle"] = Anything("paddle")
"""

CLASSIC = """
import sys
from reprod_log import ReprodDiffHelper
helper = ReprodDiffHelper()
ours, theirs, report = sys.argv[1:4]
helper.compare_info(helper.load_info(ours), helper.load_info(theirs))
helper.report(path=report)
"""
"""The script that users of 1.0.1 write; it runs with either package."""


def peer_python(given: str | None) -> str:
    """The Python that has reprod_log 1.0.1: the one that was given, or one that is set up now beside the benchmarks."""
    if given:
        return given
    folder = PEERS / "reprod_log-1.0.1"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        import numpy

        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        # Its own requirements are two frameworks; for comparing files numpy is enough.
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, f"numpy=={numpy.__version__}"], check=True)
        subprocess.run([*install, "--no-deps", "reprod_log==1.0.1"], check=True)
        (folder / "ready").touch()
    return str(python)
