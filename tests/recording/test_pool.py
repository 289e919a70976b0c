"""Copies whose memory is used again, and only when nobody has them any more."""

import numpy as np

from reprod_log.recording.recorder import Pool


def test_copies_that_are_held_keep_their_values_while_others_come_and_go() -> None:
    pool = Pool()
    held: dict[int, np.ndarray] = {}
    for number in range(40):
        shape, dtype = ((100, 1000), np.float32) if number % 3 else ((1000, 100), np.int32)
        given = np.full(shape, number, dtype)
        held[number % 7] = pool.copy(given)
        given[:] = -1
        assert (held[number % 7].shape, held[number % 7].dtype) == (shape, dtype)
        assert all(np.all(one == one[0, 0]) and one[0, 0] % 7 == place for place, one in held.items())


def test_copy_is_in_c_order() -> None:
    pool = Pool()
    turned = np.arange(60_000.0).reshape(200, 300).T
    assert pool.copy(turned).flags.c_contiguous
    assert np.array_equal(pool.copy(turned), turned)
