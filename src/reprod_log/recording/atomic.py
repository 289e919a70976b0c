"""Writing that either happens whole or leaves the old file as it was."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from reprod_log.errors import WriteFailed

_ADVICE = {
    errno.EISDIR: "Give the name of a file in it.",
    errno.EEXIST: "A part of this path is a file and not a folder; choose another place.",
    errno.ENOTDIR: "A part of this path is a file and not a folder; choose another place.",
    errno.EACCES: "You may not write there; choose another place.",
    errno.EPERM: "You may not write there; choose another place.",
    errno.EROFS: "Nothing may be written there; choose another place.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` only when the block ends well.

    The temporary file lies in the same folder, so the last step is one rename. Folders are made.
    """
    import tempfile  # who only reads does not wait for it

    # A link stays a link: what it points to is replaced. A device or pipe is written to as it is.
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        with _direct(path) as file:
            yield file
        return
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
        with os.fdopen(number, "wb") as file:
            yield file
        os.chmod(temporary, _usual_mode(path))
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise _write_failed(path, error) from error
    finally:
        if temporary is not None:
            # A disk that refused the rest may refuse this as well.
            with suppress(OSError):
                os.unlink(temporary)


@contextmanager
def _direct(path: Path) -> Iterator[BinaryIO]:
    try:
        with open(path, "wb") as file:
            yield file
    except OSError as error:
        raise _write_failed(path, error) from error


def _write_failed(path: Path, error: OSError) -> WriteFailed:
    kept = " The file that was there before is unchanged." if path.is_file() else ""
    advice = _ADVICE.get(error.errno or 0, "Free some space or choose another place and try again.")
    return WriteFailed(
        error.errno or 0,
        f"could not write {path}: {error.strerror or error}.{kept} {advice}",
    )


def _usual_mode(path: Path) -> int:
    """Permissions the file had, or those that a plain `open` would give it (mkstemp gives 0600)."""
    with suppress(FileNotFoundError):
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
