"""Memory for the numpy pass, kept by each thread from pair to pair: to get fresh memory from the system, and to give it
back, takes several times as long as the arithmetic on a tensor of a megabyte.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from reprod_log.measure.dtypes import Array, DType


class Room:
    """Hands out buffers; once it is left, the same memory goes to the next who asks."""

    def __init__(self) -> None:
        self._kept: list[Array] = []
        self._given = 0

    def empty(self, size: int, dtype: DType) -> Array:
        """A buffer with anything in it."""
        nbytes = size * dtype.itemsize
        if self._given == len(self._kept):
            self._kept.append(np.empty(nbytes, np.uint8))
        elif self._kept[self._given].size < nbytes:
            self._kept[self._given] = np.empty(nbytes, np.uint8)
        buffer = self._kept[self._given][:nbytes].view(dtype)
        self._given += 1
        return buffer

    def leave(self) -> None:
        """Nobody uses the buffers any more."""
        self._given = 0


class _Rooms(threading.local):
    free: Room | None = None


_ROOMS = _Rooms()


@contextmanager
def room() -> Iterator[Room]:
    """This thread's room; a second one for who asks while the first is in use."""
    mine, _ROOMS.free = _ROOMS.free or Room(), None
    try:
        yield mine
    finally:
        mine.leave()
        _ROOMS.free = mine
