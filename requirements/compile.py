"""Writes dev.txt: every package of development with its version and hashes (`make requirements`).

The frameworks are left out: torch's CPU build and its usual build have one version number and different files, so no
hash of it holds everywhere. `constraints.txt` pins their versions. No address of an index is written.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
GROUPS = ("test", "docs", "lint", "fuzz", "mutants", "sbom")


def main() -> None:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    wanted = list(project["project"]["dependencies"])
    for group in GROUPS:
        wanted += [one for one in project["dependency-groups"][group] if isinstance(one, str)]
    pinned = (HERE.parent / "constraints.txt").read_text().splitlines()
    frameworks = ("torch", "paddlepaddle")
    with tempfile.TemporaryDirectory() as place:
        source, limits = Path(place) / "dev.in", Path(place) / "constraints.txt"
        source.write_text("\n".join([*wanted, f"-c {limits.name}"]) + "\n")
        limits.write_text("\n".join(line for line in pinned if not line.startswith(frameworks)) + "\n")
        subprocess.run(
            [
                sys.executable, "-m", "piptools", "compile", "--generate-hashes", "--allow-unsafe", "--strip-extras",
                "--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host", "--no-annotate", "--no-header",
                "--quiet", "--output-file", str(Path(place) / "dev.txt"), str(source),
            ],
            check=True, cwd=place,
        )  # fmt: skip
        found = (Path(place) / "dev.txt").read_text()
    head = "# Made by `make requirements` with Python {}.{}; the reason why frameworks are missing is in compile.py.\n"
    (HERE / "dev.txt").write_text(head.format(*sys.version_info[:2]) + found)


if __name__ == "__main__":
    main()
