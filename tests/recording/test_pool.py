"""Copies whose memory is used again, and only when nobody has them any more."""

import gc

import numpy as np

from reprod_log.recording.recorder import Pool


def test_memory_is_used_again_when_the_copy_is_let_go_of_and_not_before() -> None:
    pool = Pool()
    given = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    first = pool.copy(given)
    second = pool.copy(given + 1)
    place = first.ctypes.data
    assert second.ctypes.data != place
    assert np.array_equal(first, given)
    del first
    gc.collect()
    third = pool.copy((given + 2).view(np.int32).reshape(1000, 100))
    assert third.ctypes.data == place
    assert np.array_equal(second, given + 1)
    assert third.dtype == np.int32
    assert np.array_equal(third.view(np.float32).reshape(100, 1000), given + 2)


def test_copy_is_in_c_order_and_small_ones_are_plain() -> None:
    pool = Pool()
    turned = np.arange(60_000.0).reshape(200, 300).T
    assert pool.copy(turned).flags.c_contiguous
    assert np.array_equal(pool.copy(turned), turned)
    assert pool.copy(np.ones(3)).flags.owndata
