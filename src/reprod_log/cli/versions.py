"""Versions of a program to search through: commits of its repository, or releases of a package that it uses.

A script is recorded with each in a place of its own: a commit in a work tree, a release in an environment that takes
everything else from the one that runs now. Nothing of the user's own is changed.
"""

from __future__ import annotations

import re
import shutil
import site
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from reprod_log.cli.scripts import Script
from reprod_log.errors import UsageError


@dataclass(frozen=True)
class Commits:
    """The commits of the repository around a script, from one to another."""

    top: Path
    names: tuple[str, ...]

    @classmethod
    def between(cls, first: str, last: str, script: Path) -> Commits:
        """All commits that lead from `first` to `last`, both included."""
        top = Path(_git(script.resolve().parent, "rev-parse", "--show-toplevel"))
        start, end = (_git(top, "rev-parse", "--verify", f"{name}^{{commit}}") for name in (first, last))
        row = _git(top, "rev-list", "--reverse", "--first-parent", f"{start}..{end}").split()
        if not row:
            raise UsageError(f"no commit leads from {first} to {last}; give the older one, which is right, first")
        return cls(top, (start, *row))

    def title(self, name: str) -> str:
        """The commit in words."""
        return _git(self.top, "log", "-1", "--format=%h %s (%an, %as)", name)

    def record(self, name: str, script: Script, output: Path) -> int:
        """Record the script as it is in that commit, or as it is now where the commit does not have it."""
        with tempfile.TemporaryDirectory(prefix="reprod-bisect-") as place:
            tree = Path(place) / self.top.name
            _git(self.top, "worktree", "add", "--detach", "--force", str(tree), name)
            try:
                there = tree / script.path.resolve().relative_to(self.top)
                if not there.exists():
                    there.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(script.path, there)
                folder = tree / Path.cwd().relative_to(self.top) if Path.cwd().is_relative_to(self.top) else tree
                return replace(script, path=there).record(output, folder=folder if folder.is_dir() else tree)
            finally:
                _git(self.top, "worktree", "remove", "--force", str(tree))


@dataclass(frozen=True)
class Releases:
    """Releases of an installed package, from one to another."""

    package: str
    names: tuple[str, ...]

    @classmethod
    def between(cls, package: str, first: str, last: str) -> Releases:
        """All releases that pip knows from `first` to `last`, both included."""
        told = _output([sys.executable, "-m", "pip", "index", "versions", package])
        line = re.search(r"^Available versions: (.+)$", told, re.MULTILINE)
        known = [one.strip() for one in line[1].split(",")][::-1] if line else []
        missing = [name for name in (first, last) if name not in known]
        if missing or known.index(first) >= known.index(last):
            why = f"pip knows no {package} {missing[0]}" if missing else f"{first} is not older than {last}"
            raise UsageError(f"{why}; it knows {', '.join(known[-12:]) or 'no release'}. Give the older one first")
        return cls(package, tuple(known[known.index(first) : known.index(last) + 1]))

    def title(self, name: str) -> str:
        """The release in words."""
        return f"{self.package} {name}"

    def record(self, name: str, script: Script, output: Path) -> int:
        """Record the script with this release of the package and everything else as it is installed here."""
        with tempfile.TemporaryDirectory(prefix="reprod-bisect-") as place:
            venv.create(place, with_pip=True, symlinks=True)
            python = str(next(one for one in Path(place).glob("*/python*") if one.is_file()))
            own = _output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
            # addsitedir, because packages that are installed for editing are found by files in these folders.
            here = "; ".join(f"site.addsitedir({folder!r})" for folder in site.getsitepackages())
            Path(own, "everything_else.pth").write_text(f"import site; {here}\n")
            _output([python, "-m", "pip", "install", "--quiet", f"{self.package}=={name}"])
            return script.record(output, python=python)


def first_change(count: int, same: Callable[[int], bool | None]) -> tuple[int, int]:
    """The last of `count` versions known to be the same as the first, and the first known to differ.

    `same` is asked as seldom as possible. It answers None for a version that cannot be recorded; between the two that
    are returned are only such versions.
    """
    good, bad, unusable = 0, count - 1, set[int]()
    while left := [place for place in range(good + 1, bad) if place not in unusable]:
        middle = min(left, key=lambda place: abs(2 * place - good - bad))
        found = same(middle)
        if found is None:
            unusable.add(middle)
        elif found:
            good = middle
        else:
            bad = middle
    return good, bad


def _git(folder: Path, *arguments: str) -> str:
    return _output(["git", "-C", str(folder), *arguments]).strip()


def _output(line: list[str]) -> str:
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(f"{line[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        why = (done.stderr or done.stdout).strip().splitlines()
        raise UsageError(f"{' '.join(line[:6])} … failed: {why[-1] if why else done.returncode}")
    return done.stdout
