"""Work in batches: their bounds, the order of results, who does it, and what is heard of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest

from reprod_log.errors import UsageError
from reprod_log.measure import spread as spreading
from reprod_log.measure.spread import spread, usable_cores


def doubled(batch: Sequence[int]) -> list[int]:
    return [2 * one for one in batch]


def batches(*sizes: int, room: int = 10, items: int = 3) -> list[list[int]]:
    """The batches in which items of these sizes are done."""
    seen: list[list[int]] = []

    def work(batch: Sequence[int]) -> list[int]:
        seen.append(list(batch))
        return list(batch)

    with mock.patch.multiple(spreading, _BATCH_BYTES=room, _BATCH_ITEMS=items):
        assert spread(work, list(sizes), size=lambda one: one, threads=1) == list(sizes)
    return seen


def test_batches_are_cut_by_size_and_by_number() -> None:
    assert batches(5, 5, 1) == [[5, 5], [1]]
    assert batches(5, 6, 1) == [[5], [6, 1]]
    assert batches(11, 1) == [[11], [1]], "one that is larger goes alone"
    assert batches(1, 11, 1) == [[1], [11], [1]]
    assert batches(1, 1, 1, 1, 1) == [[1, 1, 1], [1, 1]]
    assert batches(0, 0, 0, 0) == [[0, 0, 0], [0]]
    assert batches(10, 0, 1) == [[10, 0], [1]]
    assert batches() == []


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
def test_results_come_in_the_order_of_the_items(threads: int | None) -> None:
    with mock.patch.object(spreading, "_BATCH_ITEMS", 2):
        assert spread(doubled, range(9), size=lambda one: one, threads=threads) == [2 * one for one in range(9)]
    assert spread(doubled, [], size=lambda one: one, threads=threads) == []


def test_progress_is_told_in_units_of_size() -> None:
    heard: list[tuple[int, int]] = []
    with mock.patch.object(spreading, "_BATCH_ITEMS", 2):
        spread(doubled, [5, 1, 2], size=lambda one: 10 * one, threads=1, progress=lambda *now: heard.append(now))
    assert heard == [(60, 80), (80, 80)]


def who(batch: Sequence[int]) -> list[str]:
    return [threading.current_thread().name for _ in batch]


LARGE = spreading._WORTH_THREADS


def large(item: int) -> int:
    return LARGE


def test_threads_are_as_many_as_are_asked_for_and_no_more_than_batches() -> None:
    with mock.patch.object(spreading, "_BATCH_ITEMS", 1):
        assert set(spread(who, range(3), size=large, threads=1)) == {threading.current_thread().name}
        names = spread(who, range(4), size=large, threads=2)
        assert all(name.startswith("reprod_log") for name in names)
        with mock.patch.object(spreading, "ThreadPoolExecutor", wraps=ThreadPoolExecutor) as pool:
            for threads, items in ((2, 4), (8, 3)):
                spread(who, range(items), size=large, threads=threads)
            with mock.patch.object(spreading, "usable_cores", return_value=3):
                spread(who, range(5), size=large)
        assert [call.args[0] for call in pool.call_args_list] == [2, 3, 3]
    assert spread(who, [1], size=large, threads=5) == [threading.current_thread().name], "one batch"


def test_small_items_are_done_here() -> None:
    here = threading.current_thread().name
    with mock.patch.object(spreading, "_BATCH_ITEMS", 1):
        sizes = {0: LARGE - 1, 1: LARGE + 1}
        assert here not in spread(who, range(2), size=sizes.__getitem__, threads=2)
        sizes = {0: LARGE - 1, 1: LARGE}
        assert set(spread(who, range(2), size=sizes.__getitem__, threads=2)) == {here}


def test_executor_that_is_given_does_the_work() -> None:
    with ThreadPoolExecutor(2, thread_name_prefix="mine") as pool:
        names = spread(who, range(3), size=lambda one: one, executor=pool)
    assert all(name.startswith("mine") for name in names)


def test_wrong_numbers_of_threads_are_refused() -> None:
    with pytest.raises(UsageError, match="threads=0 cannot do any work"):
        spread(doubled, [1], size=lambda one: one, threads=0)
    with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match="either an executor or a number of threads"):
        spread(doubled, [1], size=lambda one: one, threads=1, executor=pool)


def test_work_that_fails_ends_what_has_not_begun() -> None:
    done: list[int] = []

    def work(batch: Sequence[int]) -> list[int]:
        if batch[0] == 0:
            raise ValueError("the first")
        done.extend(batch)
        return list(batch)

    shut: list[dict[str, Any]] = []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *args: Any, **options: Any) -> None:
            shut.append(options)
            super().shutdown(*args, **options)

    with (
        mock.patch.multiple(spreading, _BATCH_ITEMS=1, ThreadPoolExecutor=Pool),
        pytest.raises(ValueError, match="first"),
    ):
        spread(work, range(200), size=large, threads=2)
    assert shut[0] == {"cancel_futures": True}


def test_cores_are_those_that_the_process_may_use() -> None:
    with mock.patch.object(os, "sched_getaffinity", return_value={0, 3, 5}, create=True) as asked:
        assert usable_cores() == 3
        asked.assert_called_once_with(0)
    with mock.patch.object(spreading, "os", spec=["cpu_count"]) as system:
        system.cpu_count.return_value = 6
        assert usable_cores() == 6
        system.cpu_count.return_value = None
        assert usable_cores() == 1
