"""Background: writes shards on a thread of its own while the program goes on, never more than a little behind it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from reprod_log.errors import WriteFailed
from reprod_log.recording.entry import Array, Entry

Batch = Sequence[tuple[Entry, Array | None]]

AT_ONCE = 1 << 18
"""Batches of up to so many bytes are on disk when `write` comes back: no thread is worth it, and a kill loses none."""
MOST_WAITING_BYTES = 1 << 29
MOST_WAITING = 2
"""What may wait to be written: two steps, and together no more than 512 MB unless a single step is larger."""


class Background:
    """Hands batches to `write` in order. `put` waits when too much is waiting (back-pressure).

    When the disk refuses, what waits and what comes later is dropped; `failure` then says which batch it was. Any other
    error is raised in the program's own thread, by the next call.
    """

    def __init__(self, write: Callable[[Batch], None]) -> None:
        self._write = write
        self._waiting: deque[tuple[Batch, int]] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._over = False
        self._error: BaseException | None = None
        self.failure: tuple[Batch, WriteFailed] | None = None

    def put(self, batch: Batch) -> None:
        """Take a batch, now or as soon as there is room for it; its arrays must not change any more."""
        size = sum(array.nbytes for _, array in batch if array is not None)
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(size))
            self._raise_error()
            if self.failure is not None:
                return
            if size > AT_ONCE or self._waiting:
                self._waiting.append((batch, size))
                self._bytes += size
                self._start()
                self._changed.notify_all()
                return
        self._do(batch)
        self._raise_error()

    def finish(self) -> None:
        """Write what is waiting and end the thread."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._raise_error()

    def _has_room(self, size: int) -> bool:
        if self.failure is not None or self._error is not None or not self._waiting:
            return True
        return len(self._waiting) < MOST_WAITING and self._bytes + size <= MOST_WAITING_BYTES

    def _start(self) -> None:
        if self._thread is None:
            # A daemon: a program that ends without leaving its `with` block is not held up.
            self._thread = threading.Thread(target=self._run, name="reprod_log writer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._over)
                if not self._waiting:
                    return
                batch, size = self._waiting[0]
            # It stays in the queue meanwhile: a small batch that comes now must not overtake it.
            self._do(batch)
            del batch
            with self._changed:
                self._waiting.popleft()
                self._bytes -= size
                if self.failure is not None or self._error is not None:
                    self._waiting.clear()
                    self._bytes = 0
                self._changed.notify_all()

    def _do(self, batch: Batch) -> None:
        try:
            self._write(batch)
        except WriteFailed as error:
            self.failure = (batch[:1], error)
        except Exception as error:  # of this thread; raised again in the program's
            self._error = error

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
