"""Earshot: what this program itself runs on a user's models is not what the user's program does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Of the running thread (or task), not of the process: while one probes, another may train.
_DEPTH: ContextVar[int] = ContextVar("reprod_log.earshot", default=0)


@contextmanager
def suppress_recording() -> Iterator[None]:
    """Recordings that were begun outside hear nothing of what is run inside; those begun inside do.

    For everything that calls models on our own account: the check of a transfer, a layer run on its own. Serves as a
    decorator too.
    """
    before = _DEPTH.set(_DEPTH.get() + 1)
    try:
        yield
    finally:
        _DEPTH.reset(before)


class Earshot:
    """Knows how deep in our own doings a recording was begun."""

    def __init__(self) -> None:
        self._depth = _DEPTH.get()

    @property
    def reaches(self) -> bool:
        """Whether what runs now is to be heard."""
        return _DEPTH.get() <= self._depth
