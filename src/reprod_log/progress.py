"""Progress of long work: as bars on a terminal or in a notebook, or as calls of a function.

Whoever works opens a stage and counts in it; the outermost public call decides, with `shown`, who gets to see it.
Stages outside of any such call cost nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, Literal, Protocol, TypeVar

from reprod_log.errors import readable_size
from reprod_log.messages import Text, message, words

Progress = Callable[[str, int, int], None]
"""Receives what is being done, how much of it is done, and how much there is (0 where that is not known)."""
Item = TypeVar("Item")
Unit = Literal["", "bytes"]

_UNTIL_SHOWN = 1.0
"""Seconds of work before bars appear."""
_RATE_OVER = 3600.0
"""Seconds that a rate is taken over: single passes of a large model take minutes."""


class Stage:
    """A part of the work whose end is in sight; called with how much of it is done."""

    def __init__(self, display: _Display | None, what: Text, total: int, unit: Unit) -> None:
        self._display = display
        self.what, self.done, self.total, self.unit = what, 0, total, unit
        self(0)

    def __call__(self, done: int, what: Text | None = None) -> None:
        self.done, self.what = done, self.what if what is None else what
        if self._display is not None:
            self._display.update(self)


class _Display(Protocol):
    def update(self, stage: Stage) -> None: ...

    def end(self, stage: Stage) -> None: ...

    def close(self) -> None: ...


_DISPLAY: ContextVar[_Display | None] = ContextVar("display", default=None)


@contextmanager
def stage(what: Text, total: int = 0, unit: Unit = "") -> Iterator[Stage]:
    """A stage of the work in the block; without a total its end is not known."""
    display = _DISPLAY.get()
    found = Stage(display, what, total, unit)
    try:
        yield found
    finally:
        if display is not None:
            display.end(found)


def each(what: str, items: Sequence[Item]) -> Iterator[Item]:
    """The items one by one, counted in a stage; `what` is the id of a message."""
    with stage(message(what), len(items)) as done:
        for number, item in enumerate(items):
            yield item
            done(number + 1)


@contextmanager
def shown(progress: bool | Progress | None = None, language: str = "en") -> Iterator[None]:
    """Show the stages of the block: None where someone looks at a terminal or a notebook, True in any case as lines or
    bars, False never, and a function is called instead. Within a block that shows them already, None changes nothing.
    """
    if progress is None and _DISPLAY.get() is not None:
        yield
        return
    display = _display_for(progress, language)
    token = _DISPLAY.set(display)
    try:
        yield
    finally:
        _DISPLAY.reset(token)
        display.close()


def _display_for(progress: bool | Progress | None, language: str) -> _Display:
    if callable(progress):
        return _Calls(progress, language)
    if progress is not False:
        if _is_terminal() or _is_notebook():
            return _Bars(language)
        if progress:
            return _Calls(_Lines(), language)
    return _Calls(lambda what, done, total: None, language)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _is_notebook() -> bool:
    """Whether bars can be drawn in the notebook that this runs in, if it is one."""
    return "ipykernel" in sys.modules and find_spec("ipywidgets") is not None


class _Calls:
    """Stages as calls of a function."""

    def __init__(self, function: Progress, language: str) -> None:
        self._function, self._words = function, words(language)

    def update(self, stage: Stage) -> None:
        self._function(self._words(stage.what), stage.done, stage.total)

    def end(self, stage: Stage) -> None:
        """A function learns of the end by the count."""

    def close(self) -> None:
        """A function has nothing to close."""


class _Lines:
    """A line on standard error for whatever begins."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self._known:
            self._known.add(what)
            print(what, file=sys.stderr, flush=True)


class _Bars:
    """Stages as bars, those inside of others below them."""

    def __init__(self, language: str) -> None:
        # Not at the top: most programs never draw one.
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        class Figures(ProgressColumn):
            def render(self, task: Any) -> str:
                return _figures(task.completed, task.total, task.speed, task.fields["unit"])

        self._words = words(language)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            Figures(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            transient=True,
            speed_estimate_period=_RATE_OVER,
            # What the program prints to a file must go on to arrive there.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._tasks: dict[Stage, Any] = {}
        # A stage may be long without counting anything.
        self._timer = threading.Timer(_UNTIL_SHOWN, self._bars.start)
        self._timer.daemon = True
        self._timer.start()

    def update(self, stage: Stage) -> None:
        what, total = self._words(stage.what), stage.total or None
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(what, total=total, unit=stage.unit)
        self._bars.update(self._tasks[stage], completed=stage.done, total=total, description=what)

    def end(self, stage: Stage) -> None:
        self._bars.remove_task(self._tasks.pop(stage))

    def close(self) -> None:
        self._timer.cancel()
        self._timer.join()
        self._bars.stop()


def _figures(done: float, total: float | None, speed: float | None, unit: Unit) -> str:
    """How much is done of how much, and how much in a second."""
    if total is None:
        return ""
    if unit == "bytes":
        rate = f"  {readable_size(speed)}/s" if speed else ""
        return f"{readable_size(done)} / {readable_size(total)}{rate}"
    rate = f"  {speed:.3g}/s" if speed else ""
    return f"{done:.0f} / {total:.0f}{rate}"
