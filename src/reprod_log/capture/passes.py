"""Passes: which of the backward passes of a process are a run's own."""

from __future__ import annotations

import threading
from weakref import WeakSet


class Passes:
    """Follows the backward passes begun in the run's own threads, and knows whether one has reached its models.

    Backward passes are heard for the whole process: other models may be trained beside the watched ones, in the same
    loop or in other threads. The run's own threads are the one in which it began and those in which its models are
    called. A framework may carry out a pass in further threads, which begin none.
    """

    def __init__(self) -> None:
        self._threads: WeakSet[threading.Thread] = WeakSet([threading.current_thread()])
        self._depths: dict[int, int] = {}
        self.reached = False
        """Whether a gradient has come to one of the models since the pass began."""

    def join(self) -> None:
        """A model is called in this thread, so its passes are the run's too."""
        self._threads.add(threading.current_thread())

    @property
    def inside(self) -> bool:
        """Whether what happens now is a part of a pass: in the thread that began it, or in one of the framework's."""
        if self._depths.get(threading.get_ident()):
            return True
        return bool(self._depths) and threading.current_thread() not in self._threads

    def begin(self) -> bool:
        """A pass begins in this thread; whether it is one to follow, and no part of another."""
        if threading.current_thread() not in self._threads:
            return False
        here = threading.get_ident()
        depth = self._depths[here] = self._depths.get(here, 0) + 1
        if depth == 1:
            self.reached = False
        return depth == 1

    def end(self) -> bool:
        """A pass has ended in this thread; whether it was one that `begin` said yes to."""
        here = threading.get_ident()
        depth = self._depths.pop(here, 0)
        if depth > 1:
            self._depths[here] = depth - 1
        return depth == 1
