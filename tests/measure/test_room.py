"""The memory that the numpy pass keeps from pair to pair."""

from __future__ import annotations

import threading

import numpy as np

from reprod_log.measure.room import room

_FLOAT64 = np.dtype(np.float64)


def test_buffers_of_one_use_do_not_overlap() -> None:
    with room() as memory:
        buffers = [memory.empty(100, _FLOAT64) for _ in range(3)]
        for number, buffer in enumerate(buffers):
            buffer[:] = number
        assert [set(buffer.tolist()) for buffer in buffers] == [{0.0}, {1.0}, {2.0}]


def test_memory_is_used_again_when_the_room_was_left() -> None:
    with room() as memory:
        first = memory.empty(100, _FLOAT64)
    with room() as memory:
        assert np.shares_memory(memory.empty(50, np.dtype(np.float32)), first)
        assert not np.shares_memory(memory.empty(100, _FLOAT64), first)


def test_who_asks_while_the_room_is_in_use_gets_another() -> None:
    with room() as outer:
        ours = outer.empty(100, _FLOAT64)
        with room() as inner:
            assert not np.shares_memory(inner.empty(100, _FLOAT64), ours)


def test_a_larger_buffer_is_whole_when_a_smaller_one_was_kept() -> None:
    with room() as memory:
        memory.empty(10, _FLOAT64)
    with room() as memory:
        assert memory.empty(1000, _FLOAT64).shape == (1000,)


def test_memory_is_used_again_after_an_error() -> None:
    try:
        with room() as memory:
            first = memory.empty(100, _FLOAT64)
            raise RuntimeError
    except RuntimeError:
        pass
    with room() as memory:
        assert np.shares_memory(memory.empty(100, _FLOAT64), first)


def test_threads_have_rooms_of_their_own() -> None:
    found = []

    def work() -> None:
        with room() as memory:
            found.append(memory.empty(100, _FLOAT64))

    with room() as memory:
        ours = memory.empty(100, _FLOAT64)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not np.shares_memory(found[0], ours)
