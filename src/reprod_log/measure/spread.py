"""Spreads work over threads, or over any executor the caller has, in batches whose bounds depend on the work alone.

So the results are the same, and in the same order, whoever does the work and however many they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from reprod_log.errors import UsageError, interrupted
from reprod_log.messages import message
from reprod_log.progress import stage

Item = TypeVar("Item")
Result = TypeVar("Result")

_BATCH_BYTES = 1 << 23
"""A batch is worth a thread's or a far machine's while: 8 MB, or one pair that is larger."""
_BATCH_ITEMS = 512
_WORTH_THREADS = 1 << 15
"""Of items with fewer bytes on average most of the work is Python's, which threads make slower."""


def spread(
    work: Callable[[Sequence[Item]], Sequence[Result]],
    items: Sequence[Item],
    *,
    size: Callable[[Item], int],
    executor: Executor | None = None,
    threads: int | None = None,
) -> list[Result]:
    """`work` done on all items, batch by batch; the results in the order of the items.

    Without an `executor`, `threads` of this process do it (None: as many as there are cores to use). With one, `work`
    and the items must be able to go where it runs things. Progress is counted in units of `size`, which are bytes.
    Ctrl-C leaves with the results of the items that were done by then.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"threads={threads} cannot do any work; give 1 or more, or nothing for one per core")
    if executor is not None and threads is not None:
        raise UsageError("give either an executor or a number of threads: an executor has its own workers")
    sizes = [size(item) for item in items]
    batches = list(_batches(items, sizes))
    total, done = sum(sizes), 0
    results: list[Result] = []
    workers = min(threads or usable_cores(), len(batches)) if total >= _WORTH_THREADS * len(items) else 1
    with stage(message("progress.comparing"), total, "bytes") as report:
        try:
            with _doing(work, batches, executor, workers) as finished:
                for batch in finished:
                    done += sum(sizes[len(results) : len(results) + len(batch)])
                    results += batch
                    report(done)
        except KeyboardInterrupt:
            raise interrupted(result=results) from None
    return results


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _doing(
    work: Callable[[Sequence[Item]], Sequence[Result]],
    batches: Sequence[Sequence[Item]],
    executor: Executor | None,
    workers: int,
) -> Iterator[Iterable[Sequence[Result]]]:
    """The finished batches in order, as they come."""
    if executor is not None:
        yield executor.map(work, batches)
    elif workers <= 1:
        yield map(work, batches)
    else:
        pool = ThreadPoolExecutor(workers, thread_name_prefix="reprod_log")
        try:
            yield pool.map(work, batches)
        finally:
            # After an error or Ctrl-C nobody waits for what has not begun.
            pool.shutdown(cancel_futures=True)


def _batches(items: Sequence[Item], sizes: Sequence[int]) -> Iterator[Sequence[Item]]:
    start, room = 0, _BATCH_BYTES
    for place, size in enumerate(sizes):
        if place > start and (size > room or place - start >= _BATCH_ITEMS):
            yield items[start:place]
            start, room = place, _BATCH_BYTES
        room -= size
    if start < len(items):
        yield items[start:]
