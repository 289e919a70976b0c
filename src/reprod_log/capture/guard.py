"""Guard: the border between a program and its recording. What goes wrong on our side ends the recording only."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

Result = TypeVar("Result")


class Guard:
    """All that a framework or a program calls of a recording is called through here, one thread at a time.

    An exception inside stops the recording, once, and the program goes on. Ctrl-C stops it too, and is raised again.
    A forked process has inherited the hooks and perhaps a lock that is never released, but not the recording: there
    every call does nothing.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._process = os.getpid()
        # The models may be called, and gradients come, in several threads at once.
        self._lock = threading.RLock()
        self.stopped = False

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that records."""
        return os.getpid() != self._process

    def __call__(self, call: Callable[..., Result]) -> Callable[..., Result | None]:
        """`call` as a hook, which does nothing once the recording has stopped."""

        @wraps(call)
        def guarded(*args: Any, **kwargs: Any) -> Result | None:
            return None if self.stopped else self.attempt(partial(call, *args, **kwargs))

        return guarded

    def attempt(self, call: Callable[..., Result], *args: Any, lets: type[Exception] | tuple[()] = ()) -> Result | None:
        """What `call` returns; None when it failed or nothing is recorded in this process. `lets` is raised again."""
        if os.getpid() != self._process:
            return None
        with self._lock:
            try:
                return call(*args)
            except lets:
                raise
            except BaseException as error:
                self.stop(error)
                if not isinstance(error, Exception):
                    raise
                return None

    def beside(self, call: Callable[..., Result], *args: Any) -> Result | None:
        """The same without the lock, for what starts computations that report to us from another thread."""
        if self.stopped or self.is_forked:
            return None
        try:
            return call(*args)
        except Exception as error:
            self.stop(error)
            return None

    def stop(self, error: BaseException) -> None:
        """Record nothing more because of `error`; the first one counts."""
        if self.stopped:
            return
        self.stopped = True
        try:
            self._failed(error)
        except Exception as another:
            warn(f"{described(error)}, and then {described(another)}")

    def end(self) -> None:
        """The recording is over; failures are no longer reported."""
        self.stopped = True
        self._failed = _nobody


def _nobody(error: BaseException) -> None:
    """Failures after the end are ignored."""


def described(error: BaseException) -> str:
    """The error's kind and words."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def warn(text: str, *, stacklevel: int = 2) -> None:
    """Warn, in a program that may have made errors of warnings or closed its output: neither may end it."""
    try:
        warnings.warn(text, stacklevel=stacklevel + 1)
    except Exception:
        try:
            print(f"reprod_log: {text}", file=sys.__stderr__)
        except (OSError, ValueError):
            return
