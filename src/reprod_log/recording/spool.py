"""Spool: the arrays of runs in nameless temporary files, mapped when they are read, each content once."""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from reprod_log.errors import UsageError, WriteFailed, readable_size
from reprod_log.recording.entry import Array

_SPOOLED_FROM = 1 << 12
"""Smaller arrays stay in memory: their page in a file would be as large."""
_FIRST_FILE, _LARGEST_FILE = 1 << 26, 1 << 30
"""Files double in size: few of them for many arrays, and little to keep of one that a single array holds back."""
_ALIGNED = 64
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


class Spool:
    """Keeps copies of arrays in files that no one else sees; a file is removed once none of its arrays is in use.

    What `keep` gives is a read-only view of the file: it takes no memory that the system could not use for something
    else. When the disk refuses, `keep` raises WriteFailed, and `check` raises it again for a caller whose hooks did not
    let it through.
    """

    def __init__(self, directory: str | Path, most: int | None = None) -> None:
        self.directory = Path(directory)
        self._most = most
        self.written = 0
        """How many bytes were written in all."""
        self._file: IO[bytes] | None = None
        self._failure: WriteFailed | None = None
        self._keeping = threading.Lock()
        self._known: WeakValueDictionary[str, Array] = WeakValueDictionary()
        self._mappings: WeakSet[mmap.mmap] = WeakSet()
        self._mapping: mmap.mmap | None = None
        self._end = 0

    def keep(self, array: Array, digest: str = "") -> Array:
        """The values of an array that may change afterwards; arrays of one content hash are kept once."""
        if array.nbytes < _SPOOLED_FROM or array.dtype.hasobject or not array.dtype.isnative:
            return np.array(array, order="C")
        with self._keeping:
            known = self._known.get(digest) if digest else None
            if known is None:
                known = self._write(np.ascontiguousarray(array))
                if digest:
                    self._known[digest] = known
        return known

    def check(self) -> None:
        """Raise WriteFailed if the disk has refused."""
        if self._failure is not None:
            raise self._failure

    def settle(self) -> None:
        """A pass is over: give back the memory that it leaves, and the mapped pages."""
        # Models that were copied, their gradients and hooks hang in cycles.
        gc.collect()
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapping in list(self._mappings):
                mapping.madvise(mmap.MADV_DONTNEED)
        if sys.platform == "linux":
            with suppress(OSError, AttributeError):  # a C library without it
                ctypes.CDLL(None).malloc_trim(0)

    def _write(self, plain: Array) -> Array:
        try:
            if self._most is not None and self.written + plain.nbytes > self._most:
                raise OSError(errno.EDQUOT, f"budget={self._most} is used up")
            file, mapping, begin = self._place(plain.nbytes)
            file.seek(begin)
            rest = plain.reshape(-1).view(np.uint8).data
            while rest:
                rest = rest[file.write(rest) :]
        except OSError as error:
            self._failure = WriteFailed(
                f"the disk refused the arrays of the runs in {self.directory} ({error.strerror or error}) after "
                f"{readable_size(self.written)}. Give spool=a folder with more room, fewer steps, detailed=1 or "
                "quick=True"
            )
            raise self._failure from error
        self._end = begin + plain.nbytes
        self.written += plain.nbytes
        return np.ndarray(plain.shape, plain.dtype, mapping, begin)

    def _place(self, size: int) -> tuple[IO[bytes], mmap.mmap, int]:
        begin = -(-self._end // _ALIGNED) * _ALIGNED
        if self._file is None or self._mapping is None or begin + size > len(self._mapping):
            length = _FIRST_FILE if self._mapping is None else min(2 * len(self._mapping), _LARGEST_FILE)
            self.close()
            self._file = tempfile.TemporaryFile(dir=self.directory, buffering=0, prefix="reprod_log-")  # noqa: SIM115
            # Long from the start, with holes where nothing was written: one mapping serves the whole file.
            self._file.truncate(max(length, size))
            self._mapping = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._mappings.add(self._mapping)
            begin = 0
        return self._file, self._mapping, begin

    def close(self) -> None:
        """Write no more into the present file; arrays that were kept stay."""
        if self._file is not None:
            self._file.close()
        self._file, self._mapping, self._end = None, None, 0

    def __del__(self) -> None:
        self.close()


def is_in_memory(directory: Path) -> bool:
    """Whether the folder is on a file system that is memory itself."""
    try:
        device = os.stat(directory).st_dev
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    name = f"{os.major(device)}:{os.minor(device)}"
    # 36 35 98:0 /root /mount options - tmpfs tmpfs rw
    kinds = {line.partition(" - ")[2].split(" ", 1)[0] for line in lines if line.split(" ", 3)[2:3] == [name]}
    return bool(kinds & _IN_MEMORY)


def free_bytes(directory: Path) -> int:
    """How much the folder's file system takes."""
    return shutil.disk_usage(directory).free


def free_memory() -> int | None:
    """How much memory this process may still take; None where it is not known."""
    found = list(_memory_limits())
    return min(found) if found else None


def _memory_limits() -> Iterator[int]:
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        yield int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        yield int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())


def open_spool(directory: str | Path | None, need: int, most: int | None = None) -> Spool | None:
    """A spool with room for `need` bytes: in the folder given, else in the first of the usual ones that has it.

    It writes at most `most` bytes.

    None when no folder was given and none of the usual ones is on a disk with so much room.
    """
    if directory is None:
        places = dict.fromkeys(Path(place) for place in (tempfile.gettempdir(), "/var/tmp", os.getcwd()))
        fitting = (place for place in places if _is_usable(place) and free_bytes(place) >= need)
        found = next(fitting, None)
        return None if found is None else Spool(found, most)
    place = Path(directory)
    if not place.is_dir():
        raise UsageError(
            f"spool={str(directory)!r} is not a folder; give one on a disk with {readable_size(need)} free"
        )
    if is_in_memory(place):
        raise UsageError(
            f"spool={str(directory)!r} is on a file system in memory (tmpfs), where nothing would be gained. Give a "
            f"folder on a disk with {readable_size(need)} free"
        )
    if free_bytes(place) < need:
        raise UsageError(
            f"spool={str(directory)!r} has {readable_size(free_bytes(place))} free, and the runs need about "
            f"{readable_size(need)}. Give another folder, budget=what it has, fewer steps, detailed=1 or quick=True"
        )
    return Spool(place, most)


def _is_usable(place: Path) -> bool:
    return place.is_dir() and os.access(place, os.W_OK) and not is_in_memory(place)
