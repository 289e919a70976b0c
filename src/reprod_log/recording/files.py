"""Files: opened although they may not be what their names say, read from other machines, written whole or not at all.

Any URL that fsspec can read (`s3://`, `gs://`, `http://`, `memory://` …) becomes a UPath, which has the methods of
pathlib's Path, so the stores read it like a file here. What cannot be mapped is fetched in ranges: opening reads the
description, and an entry's data comes alone, when it is asked for.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from reprod_log.errors import MissingPackage, ReprodLogError, UnreadableFile, UntrustedFile, UsageError, WriteFailed

_REMOTE_BLOCK = 1 << 18
"""Of a remote file this much is fetched at a time while it is read in steps."""

# Two letters at least: one is a drive. pathlib swallows the second slash, so a URL that went through it has only one.
_URL = re.compile(r"(?P<kind>[A-Za-z][A-Za-z0-9+._-]+(?:::[A-Za-z][A-Za-z0-9+._-]+)*):/(?P<rest>.*)", re.DOTALL)

_WRITE_ADVICE = {
    errno.EISDIR: "Give the name of a file in it.",
    errno.EEXIST: "A part of this path is a file and not a folder; choose another place.",
    errno.ENOTDIR: "A part of this path is a file and not a folder; choose another place.",
    errno.EACCES: "You may not write there; choose another place.",
    errno.EPERM: "You may not write there; choose another place.",
    errno.EROFS: "Nothing may be written there; choose another place.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}


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
        raise unreadable(path, error) from error


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
        raise unreadable(path, error) from error


def check_inside(path: Path, folder: Path) -> None:
    """Raise unless `path` is a plain file that really lies in `folder`, however it is linked."""
    if is_remote(path):
        return
    try:
        real = path.resolve(strict=True)
        inside = real.is_relative_to(folder.resolve(strict=True))
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links, before Python 3.13
        raise unreadable(path, error) from error
    if not inside:
        raise UntrustedFile(
            f"{path} is a link out of its recording, to {real}. It was not read. If you made this link yourself, "
            "allow it with trust=True (command line: --trust)."
        )
    if not real.is_file():
        raise UnreadableFile(f"{path} is not a file but a folder, pipe or device")


def unreadable(path: Path, error: Exception) -> UnreadableFile:
    """The error for a file that the system does not let us read."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    return UnreadableFile(f"cannot read {path}: {why}")


def location(path: str | Path) -> Path:
    """Where `path` is: a Path here, or what behaves like one (a UPath) for a URL."""
    text = str(path)
    found = _URL.fullmatch(text)
    if found is None or is_remote(path):
        return Path(path) if isinstance(path, str) else path
    kind, rest = found["kind"], found["rest"].lstrip("/")
    if kind in ("file", "local"):
        return Path("/" + unquote(rest))
    return _remote(f"{kind}://{rest}", kind)


def is_remote(path: object) -> bool:
    """Whether this is a place that `location` found elsewhere."""
    return not isinstance(path, (str, Path)) and hasattr(path, "fs")


def is_url(path: str | Path) -> bool:
    """Whether the text names a place by a URL."""
    return _URL.fullmatch(str(path)) is not None


def is_file(path: Path) -> bool:
    """Whether a file is there; of a web server only the size is requested, because fsspec would begin to fetch it."""
    if not is_remote(path):
        return path.is_file()
    far = cast(Any, path)
    try:
        return bool(far.fs.info(far.path)["type"] == "file")
    except FileNotFoundError:
        return False


def read_range(path: Path, start: int, length: int) -> bytes:
    """These bytes of a remote file and no others."""
    far = cast(Any, path)
    with reading(path):
        data: bytes = far.fs.cat_file(far.path, start=start, end=start + length)
        if len(data) > length and len(data) == path.stat().st_size:
            # A server that knows no ranges sends everything.
            data = data[start : start + length]
    if len(data) != length:
        raise UnreadableFile(f"cannot read {path}: {len(data)} bytes came instead of {length} at {start}")
    return data


@contextmanager
def reading(path: object) -> Iterator[None]:
    """Raises UnreadableFile for whatever goes wrong inside with a remote file; errors of local files pass through."""
    try:
        yield
    except ReprodLogError:
        raise
    except Exception as error:  # every file system has its own kinds: of HTTP, of S3, of its credentials
        if not is_remote(path):
            raise
        raise UnreadableFile(f"cannot read {path}: {type(error).__name__}: {error}") from error


def _remote(url: str, kind: str) -> Path:
    try:
        from fsspec.registry import known_implementations
        from upath import UPath
    except ImportError as error:
        raise MissingPackage(
            f"{url} is on another machine, which needs fsspec and universal_pathlib ({error}): "
            "pip install 'reprod_log[remote]'"
        ) from error
    try:
        path = UPath(url)
        path.fs  # noqa: B018  # imports what the kind of URL needs
    except ImportError as error:
        last = kind.rsplit("::", 1)[-1]
        package = known_implementations.get(last, {}).get("class", "").split(".")[0]
        advice = f"pip install {package}" if package not in ("", "fsspec") else "install what it names"
        raise MissingPackage(f"{url} needs a package that is not installed ({error}): {advice}") from error
    except ValueError as error:
        raise UsageError(
            f"{url}: {kind!r} is not a kind of URL that fsspec knows ({error}). Give a path, or a URL such as s3://…"
        ) from error
    return cast(Path, path)


@contextmanager
def replacing(path: str | Path, *, tidy: bool = True) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` only when the block ends well.

    The temporary file lies in the same folder, so the last step is one rename. Folders are made. `tidy` looks through
    the folder for what a process that was killed left there.
    """
    import tempfile  # not needed by a program that only logs

    # A link stays a link: what it points to is replaced. A device or pipe is written to as it is.
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        with _written_directly(path) as file:
            yield file
        return
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if tidy:
            _remove_leftovers(path)
        try:
            number, temporary = tempfile.mkstemp(
                dir=path.parent, prefix=_part_prefix(path, os.getpid()), suffix=".part"
            )
        except PermissionError:
            if not (path.is_file() and os.access(path, os.W_OK)):
                raise
            # Only the folder is closed: the file takes the new content, once all of it is there.
            content = io.BytesIO()
            yield content
            path.write_bytes(content.getvalue())
            return
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


def _part_prefix(path: Path, process: int | str) -> str:
    """The name of a temporary file has its machine and process, so that one left by a killed process is recognised."""
    return f".{path.name[:100]}.{platform.node() or 'here'}-{process}-"


def _remove_leftovers(path: Path) -> None:
    """Remove what processes of this machine that are gone left behind when they were killed while writing `path`."""
    if os.name != "posix":
        return
    start, _, _ = _part_prefix(path, "*").partition("*")
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            process = entry.name.removeprefix(start).partition("-")[0]
            leftover = entry.name.startswith(start) and entry.name.endswith(".part") and process.isdigit()
            if leftover and entry.is_file(follow_symlinks=False) and not is_running(int(process)):
                with suppress(OSError):
                    os.unlink(entry.path)


def is_running(process: int) -> bool:
    """Whether a process of this machine runs, or may do so."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


@contextmanager
def _written_directly(path: Path) -> Iterator[BinaryIO]:
    try:
        with open(path, "wb") as file:
            yield file
    except OSError as error:
        raise _write_failed(path, error) from error


def _write_failed(path: Path, error: OSError) -> WriteFailed:
    kept = " The file that was there before is unchanged." if path.is_file() else ""
    advice = _WRITE_ADVICE.get(error.errno or 0, "Free some space or choose another place and try again.")
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
