"""A progress bar that shows itself only when the work takes longer than a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reprod_log.report.terminal import terminal

_PATIENCE = 1.0


@contextmanager
def byte_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A function to be told (done, total) in bytes; draws on standard error if that is a terminal."""
    console = terminal(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    started = time.monotonic()
    bar = Progress(
        TextColumn(title),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(title)

    def tell(done: int, total: int) -> None:
        if not bar.live.is_started and time.monotonic() - started > _PATIENCE:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()
