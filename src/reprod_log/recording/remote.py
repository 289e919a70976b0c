"""Recordings on other machines: any URL that fsspec can read (`s3://`, `gs://`, `http://`, `memory://` …).

A URL becomes a UPath, which has the methods of pathlib's Path, so the stores read it like a file here. What cannot be
mapped is fetched in ranges: opening reads the description, and an entry's data comes alone, when it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from reprod_log.errors import MissingPackage, ReprodLogError, UnreadableFile, UsageError

# Two letters at least: one is a drive. pathlib swallows the second slash, so a URL that went through it has only one.
_URL = re.compile(r"(?P<kind>[A-Za-z][A-Za-z0-9+._-]+(?:::[A-Za-z][A-Za-z0-9+._-]+)*):/(?P<rest>.*)", re.DOTALL)


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
    """Whether a file is there; a web server is asked for its size, because fsspec would begin to fetch it."""
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
    """Whatever goes wrong inside with a remote file is said as UnreadableFile; files here are left to others."""
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
            f"{url}: {kind!r} is no kind of URL that fsspec knows ({error}). Give a path, or a URL such as s3://…"
        ) from error
    return cast(Path, path)
