"""Pool: memory for copies that is used again and again.

Fresh memory costs five times the copy itself, because the system hands it out page by page. A recording that is written
to disk step by step needs the same sizes in every step.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable

import numpy as np

from reprod_log.recording.entry import Array

_WORTH_IT = 1 << 16
"""Smaller arrays come from the allocator's own reserve."""
_MOST_SPARE = 1 << 29


class Pool:
    """Gives copies of arrays, and takes their memory back when nobody has the copy any more.

    Only for arrays that never leave the recorder: a part of a copy does not keep its memory from being used again.
    """

    def __init__(self) -> None:
        self._spare: dict[int, deque[Array]] = {}
        self._bytes = 0
        self._lent: dict[int, weakref.ref[Array]] = {}

    def copy(self, array: Array) -> Array:
        """A copy in C order, which must be let go of as a whole."""
        copied = self.empty(array)
        np.copyto(copied, array)
        return copied

    def empty(self, like: Array) -> Array:
        """An array of the same shape and dtype with any content."""
        if like.nbytes < _WORTH_IT:
            return np.empty(like.shape, like.dtype)
        try:
            memory = self._spare[like.nbytes].popleft()
            self._bytes -= like.nbytes
        except (KeyError, IndexError):
            memory = np.empty(like.nbytes, np.uint8)
        lent: Array = memory.view(like.dtype).reshape(like.shape)
        self._lent[id(lent)] = weakref.ref(lent, self._returner(id(lent), memory))
        return lent

    def _returner(self, name: int, memory: Array) -> Callable[[object], None]:
        # Called by whichever thread lets go last; a deque may be filled from any.
        def take_back(_: object) -> None:
            self._lent.pop(name, None)
            if self._bytes + memory.nbytes > _MOST_SPARE:
                return
            self._bytes += memory.nbytes
            self._spare.setdefault(memory.nbytes, deque()).append(memory)

        return take_back
