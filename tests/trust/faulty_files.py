"""A file layer that fails: counts everything that changes the disk and does something nasty at the n-th of them.

Only changes below one folder count, so that Python's own doings (caches, the test's files) stay out of it.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Fault = Callable[[], None]


def error_of(number: int) -> Fault:
    """A fault that raises this error of the operating system."""

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


def kill() -> None:
    """The process is gone, without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


class Layer:
    """Counts operations below `folder`; at number `at` and, when `lasting`, at all later ones, the fault happens."""

    def __init__(self, folder: Path, at: int, fault: Fault, *, lasting: bool = False) -> None:
        self.folder = os.path.realpath(folder)
        self.at, self.fault, self.lasting = at, fault, lasting
        self.count = 0
        self.happened = False

    def step(self, path: object) -> bool:
        """Whether the fault is due now, for an operation on `path`."""
        if not os.path.realpath(os.fspath(path)).startswith(self.folder):  # type: ignore[call-overload]
            return False
        self.count += 1
        due = self.count == self.at or (self.lasting and self.count > self.at > 0)
        self.happened = self.happened or due
        return due

    def guard(self, path: object) -> None:
        if self.step(path):
            self.fault()


class _Raw(io.FileIO):
    """A file whose writes may be cut in the middle."""

    layer: Layer
    place: str

    def write(self, data: Any) -> int:
        if self.layer.step(self.place):
            half = memoryview(data).cast("B")
            super().write(half[: len(half) // 2])
            self.layer.fault()
        written = super().write(data)
        return 0 if written is None else written


@contextmanager
def faulty(layer: Layer) -> Iterator[Layer]:
    """Everything that changes the disk goes through `layer`."""
    plain_open, plain_fdopen = builtins.open, os.fdopen
    changers = ("replace", "rename", "mkdir", "unlink", "remove", "rmdir", "chmod", "open", "fsync", "link")
    plain = {name: getattr(os, name) for name in changers}

    def raw(file: Any, mode: str, place: str) -> Any:
        opened = _Raw(file, mode.replace("b", "").replace("t", ""))
        opened.layer, opened.place = layer, place
        return io.BufferedWriter(opened)

    def open_(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not set(mode) & set("wax+") or isinstance(file, int) or "b" not in mode:
            return plain_open(file, mode, *args, **options)
        layer.guard(file)
        return raw(file, mode, os.fspath(file))

    def fdopen(number: int, mode: str = "r", *args: Any, **options: Any) -> Any:
        place = os.readlink(f"/proc/self/fd/{number}")
        if mode != "wb" or not place.startswith(layer.folder):
            return plain_fdopen(number, mode, *args, **options)
        return raw(number, mode, place)

    def changing(name: str) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            reading = name == "open" and not (args and args[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if not reading and not isinstance(path, int):
                folder = options.get("dir_fd")
                layer.guard(path if folder is None else os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path))
            return plain[name](path, *args, **options)

        return call

    try:
        builtins.open, os.fdopen = open_, fdopen
        for name in changers:
            setattr(os, name, changing(name))
        yield layer
    finally:
        builtins.open, os.fdopen = plain_open, plain_fdopen
        for name in changers:
            setattr(os, name, plain[name])


DISK_FAULTS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EACCES", "EROFS")}
