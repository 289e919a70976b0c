"""The quick way through an everyday pair gives what the careful one gives, and leaves the odd pairs to it."""

import numpy as np
import pytest

from reprod_log.classic import difference
from reprod_log.classic.difference import array_difference

RNG = np.random.default_rng(0)
ARRAY = RNG.normal(size=(7, 300)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quick_and_careful_way_agree_to_the_bit(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ARRAY.astype(dtype)
    two = one + RNG.normal(scale=1e-6, size=one.shape).astype(dtype)
    quick = array_difference(one, two)
    monkeypatch.setattr(difference, "_plain", lambda one, two: None)
    careful = array_difference(one, two)
    assert dict(quick) == dict(careful)
    assert [type(value) for value in quick.values()] == [type(value) for value in careful.values()]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (np.array([np.nan, 1], np.float32), np.array([1, 1], np.float32)),
        (np.array([np.inf, 1], np.float32), np.array([np.inf, 1], np.float32)),
        (np.full(8, 3e38, np.float32), np.full(8, -3e38, np.float32)),
        (np.full(9, 1e-38, np.float32), np.zeros(9, np.float32)),
        (np.zeros(0, np.float32), np.zeros(0, np.float32)),
        (np.zeros((1, 3), np.float32), np.zeros(3, np.float32)),
        (np.zeros(3, np.int32), np.ones(3, np.int32)),
        (np.zeros(3, np.float32), np.ones(3, np.float64)),
        (np.asfortranarray(ARRAY), np.asfortranarray(ARRAY + 1)),
    ],
)
def test_odd_pairs_go_the_careful_way(one: np.ndarray, two: np.ndarray) -> None:
    assert difference._plain(one, two) is None


def test_equal_arrays_differ_by_nothing() -> None:
    assert dict(array_difference(ARRAY, ARRAY.copy())) == {"mean": 0.0, "max": 0.0, "min": 0.0}
