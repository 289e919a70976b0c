"""The Python that has the peers: mindstudio-probe and TorchLens, in a virtual environment outside of the repository.

It borrows torch and numpy from the Python that runs the benchmark, so that all tools record the very same step.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

PACKAGES = {"msprobe": "mindstudio-probe", "torchlens": "torchlens"}
SWITCH = "REPROD_BENCH_PEERS"
"""Folder of the environment; by default in the user's cache."""


def peers_python() -> str:
    """The interpreter of the environment, which is made at first use."""
    folder = Path(os.environ.get(SWITCH, "") or Path.home() / ".cache" / "reprod_log" / "capture-peers")
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        site = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        (Path(site) / "zz_borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return str(python)


def installed(package: str, python: str) -> str:
    """The version of a peer, installed now if it is not there; '' (and a line that says why) when it cannot be."""
    found = _version(package, python)
    if not found:
        command = [python, "-m", "pip", "install", "--quiet", PACKAGES[package]]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        found = _version(package, python)
        if not found:
            reason = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
            print(f"{PACKAGES[package]} is left out: it cannot be installed ({reason[0][:200]})")
    return found


def _version(package: str, python: str) -> str:
    code = f"import importlib.metadata as m, {package}; print(m.version({PACKAGES[package]!r}))"
    done = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True)
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 and done.stdout.strip() else ""
