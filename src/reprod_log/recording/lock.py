"""Lock: one process at a time writes a recording. What a killed process left behind holds nobody up."""

from __future__ import annotations

import json
import os
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from reprod_log.errors import RecordingError

if sys.platform != "win32":
    import fcntl

NAME = ".writing"


class Lock:
    """Held from the moment it is made until `release`, the end of its owner, or the end of the process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        number = _opened(self.path)
        content = json.dumps({"pid": os.getpid(), "host": _host()}).encode()
        os.ftruncate(number, 0)
        os.pwrite(number, content, 0)
        self._end = weakref.finalize(self, _release, self.path, number, os.getpid())

    def release(self) -> None:
        self._end()


def check_unlocked(folder: Path) -> None:
    """Raise RecordingError when another process, or another part of this one, is writing into `folder`."""
    path = folder / NAME
    if path.exists():
        _close(_opened(path))


def _opened(path: Path) -> int:
    """The lock file, opened and locked."""
    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            _lock(path, number)
            # It may have been released, and so removed, between opening and locking.
            if _same(path, number):
                return number
        except BaseException:
            _close(number)
            raise
        _close(number)


def _lock(path: Path, number: int) -> None:
    holder = _holder(number)
    if sys.platform != "win32":
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            # Worker processes inherit the lock, and may outlive a parent that was killed.
            if not _alive(holder):
                return
    elif holder is None or not _alive(holder):
        return
    pid, host = (holder or {}).get("pid", "?"), (holder or {}).get("host", "?")
    raise RecordingError(
        f"{path.parent} is being written by process {pid} on {host}. Choose another name, or wait until it has "
        f"ended; if there is no such process, remove {path}."
    )


def _holder(number: int) -> dict[str, Any] | None:
    try:
        found = json.loads(os.pread(number, 1000, 0))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _host() -> str:
    import socket  # who only reads does not wait for it

    return socket.gethostname()


def _alive(holder: dict[str, Any] | None) -> bool:
    """Whether the process that wrote the lock may still run; of another machine that cannot be known."""
    if holder is None or holder.get("host") != _host():
        return True
    pid = holder.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _same(path: Path, number: int) -> bool:
    try:
        there, here = path.stat(), os.fstat(number)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _release(path: Path, number: int, owner: int) -> None:
    with suppress(OSError):
        # A forked child that ends has not written anything.
        if owner == os.getpid() and _same(path, number):
            path.unlink()
    _close(number)


def _close(number: int) -> None:
    with suppress(OSError):
        os.close(number)
