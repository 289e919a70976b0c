"""Opening files that may not be what their names say: pipes, links out of a folder, files that vanish."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, BinaryIO, cast

from reprod_log.errors import UnreadableFile, UntrustedFile
from reprod_log.recording.remote import is_remote, read_range, reading

_REMOTE_BLOCK = 1 << 18
"""Of a remote file this much is fetched at a time while it is read in steps."""


def opened(path: Path) -> BinaryIO:
    """The file, open for reading; of a remote one only what is read is fetched, and a little more."""
    if is_remote(path):
        far: BinaryIO = cast(Any, path).open("rb", block_size=_REMOTE_BLOCK)
        return far
    return open(path, "rb")


def first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file."""
    try:
        if is_remote(path):
            with reading(path):
                return read_range(path, 0, min(count, path.stat().st_size))
        with open(path, "rb") as file:
            # Asked for more than there is, read() makes room for all of it first.
            return file.read(min(count, path.stat().st_size))
    except OSError as error:
        raise _unreadable(path, error) from error


def mapped(path: Path) -> mmap.mmap:
    """The file, mapped for reading."""
    try:
        with open(path, "rb") as file:
            found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_SEQUENTIAL"):
            # Tensors are read from end to end: of files that are not in memory yet, nearly twice as fast.
            found.madvise(mmap.MADV_SEQUENTIAL)
        return found
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def check_inside(path: Path, folder: Path) -> None:
    """Raise unless `path` is a plain file that really lies in `folder`, however it is linked."""
    if is_remote(path):
        return
    try:
        real = path.resolve(strict=True)
        inside = real.is_relative_to(folder.resolve(strict=True))
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links, before Python 3.13
        raise _unreadable(path, error) from error
    if not inside:
        raise UntrustedFile(
            f"{path} is a link out of its recording, to {real}. It was not read. If you made this link yourself, "
            "allow it with trust=True (command line: --trust)."
        )
    if not real.is_file():
        raise UnreadableFile(f"{path} is not a file but a folder, pipe or device")


def _unreadable(path: Path, error: Exception) -> UnreadableFile:
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    return UnreadableFile(f"cannot read {path}: {why}")
