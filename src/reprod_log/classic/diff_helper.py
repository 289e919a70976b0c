"""ReprodDiffHelper: loads two logs, compares them, and writes the classic report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reprod_log.classic.difference import check_data, compute_diff
from reprod_log.classic.loaded import load_log
from reprod_log.classic.text import check_print_diff, stamped
from reprod_log.errors import ClassicUsageError, UnreadableFile, UsageError
from reprod_log.recording.entry import gc_paused
from reprod_log.recording.files import replacing
from reprod_log.recording.stores import existing


@dataclass(frozen=True)
class ReportResult:
    """The result of a report; true in an `if` exactly when the check passed."""

    passed: bool
    text: str
    path: Path | None = None

    def __bool__(self) -> bool:
        return self.passed


class ReprodDiffHelper:
    """Compares what two sides logged."""

    diff_dict: dict[str, Any]

    def load_info(self, path: str | os.PathLike[str], trust: bool = False) -> dict[str, Any]:
        """The dict that `ReprodLogger.save` wrote, in its order; large arrays are read when they are looked at.

        Reading runs no code from the file; `trust=True` lifts that for files you made yourself.
        """
        found = existing(Path(path))
        with gc_paused():
            content = load_log(found, trust=trust)
        if not isinstance(content, dict):
            shape = f" of shape {list(content.shape)}" if isinstance(content, np.ndarray) else ""
            raise UnreadableFile(f"{found} holds a {type(content).__name__}{shape}, not a log saved by ReprodLogger")
        return content

    def compare_info(
        self, info1: Mapping[str, Any], info2: Mapping[str, Any], equal_nan: bool = False
    ) -> dict[str, Any]:
        """mean, max and min of the absolute difference for every key; also kept as `diff_dict` for `report`."""
        for name, info in (("info1", info1), ("info2", info2)):
            if not isinstance(info, Mapping):
                raise ClassicUsageError(f"{name} must be a dict as load_info returns it, not {type(info).__name__}")
        check_data(info1, info2)
        with gc_paused():
            self.diff_dict = compute_diff(info1, info2, equal_nan)
        return self.diff_dict

    def report(
        self,
        diff_method: Any = "mean",
        diff_threshold: float = 1e-6,
        path: str | os.PathLike[str] | None = "./diff.txt",
    ) -> ReportResult:
        """Print the differences and whether they pass, and write the same lines to `path` (None: screen only)."""
        if not hasattr(self, "diff_dict"):
            raise UsageError("nothing to report yet: call compare_info(info1, info2) first")
        lines: list[str] = []

        def write(message: str) -> None:
            line = stamped(message)
            lines.append(line)
            _print(line)

        passed = check_print_diff(self.diff_dict, diff_method, diff_threshold, write)
        if not self.diff_dict:
            write("note: nothing was compared")
        write("diff check passed" if passed else "diff check failed")
        text = "\n".join(lines) + "\n"
        if path is None:
            return ReportResult(passed, text)
        with replacing(Path(path)) as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        return ReportResult(passed, text, Path(path))


def _print(line: str) -> None:
    """Print a line; where that cannot be done the report goes on, as 1.0.1's did, and its file is written."""
    try:
        print(line)
    except UnicodeEncodeError:
        print(line.encode("ascii", "backslashreplace").decode())
    except (OSError, ValueError):
        # The reader has gone, or standard output is closed.
        return
