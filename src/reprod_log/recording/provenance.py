"""Provenance: where a recording came from, so that two of them can be told apart later."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Provenance:
    """What produced a recording. Everything is optional: classic files know nothing of themselves."""

    framework: str = ""
    framework_version: str = ""
    device: str = ""
    dtype: str = ""
    seeds: Mapping[str, int] = field(default_factory=dict)
    threads: int | None = None
    command: str = ""
    git_commit: str = ""
    time: str = ""
    python: str = ""
    numpy: str = ""
    platform: str = ""
    reprod_log: str = ""
    weights_hash: str = ""
    """Hash of all initial parameters and buffers, when a model was recorded."""
    data_hash: str = ""
    """Hash of the inputs that were fed, when they were recorded."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in ("", None, {})}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Provenance:
        known = {item.name for item in fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        unknown = {name: value for name, value in data.items() if name not in known}
        if unknown:
            values["extra"] = {**values.get("extra", {}), **unknown}
        return cls(**values)

    def differences(self, other: Provenance) -> dict[str, tuple[Any, Any]]:
        """Every field in which the two differ, with both values."""
        mine, theirs = asdict(self), asdict(other)
        return {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name]}


def current_provenance(**known: Any) -> Provenance:
    """The provenance of this process now; `known` adds or overrides what only the caller can know."""
    from reprod_log.version import __version__

    values: dict[str, Any] = {
        "threads": _thread_count(),
        "command": " ".join(sys.argv),
        "git_commit": git_commit(),
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "reprod_log": __version__,
    }
    values.update(known)
    return Provenance(**values)


def git_commit() -> str:
    """The commit of the working directory, with '+' when it has uncommitted changes; '' outside a repository."""
    import subprocess  # a hundredth of a second that only recording needs

    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _thread_count() -> int | None:
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return int(text) if text.isdigit() else os.cpu_count()
