"""Small pairs measured together give what each of them gives alone."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_for_arrays import array_pairs
from ways import WAYS, measured_by

from reprod_log.measure.fused import measure_arrays
from reprod_log.measure.small import SMALL, is_small, measure_small

KINDS = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool", "complex64", "float8_e4m3fn"]


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40, deadline=None)
@given(
    pairs=st.lists(array_pairs(KINDS, mixed=False), min_size=1, max_size=12),
    limit=st.sampled_from([None, 0.0, 1e-6, 1.0]),
)
def test_small_pairs_measure_together_as_each_alone(
    way: str, pairs: list[tuple[np.ndarray, np.ndarray]], limit: float | None
) -> None:
    small = [pair for pair in pairs if is_small(*pair)]
    with measured_by(way):
        together = measure_small([(*pair, limit) for pair in small])
        for got, pair in zip(together, small, strict=True):
            assert_same(got, measure_arrays(*pair, limit=limit))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_ordinary_pairs_that_are_small_keep_their_order_and_limits(way: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    arrays = [(rng.standard_normal(size) * 50).astype(dtype) for size in (1, 7, 1000, 9000, SMALL, SMALL, 33)]
    pairs = [(one, one + np.ones(1, dtype) * (place % 2), 0.5) for place, one in enumerate(arrays)]
    pairs.append((np.zeros((3, 4), dtype), np.zeros((3, 4), dtype), None))
    with measured_by(way):
        wanted = [measure_arrays(*pair[:2], limit=pair[2]) for pair in pairs]
        got = measure_small(pairs)
    for one, other in zip(got, wanted, strict=True):
        assert_same(one, other)
    assert [one.limit for one in got] == [0.5] * 7 + [None]
    assert got[1].beyond_limit == 7
    assert got[0].identical
    assert not got[1].identical


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (np.zeros(SMALL + 1), np.zeros(SMALL + 1)),
        (np.zeros(0), np.zeros(0)),
        (np.zeros((4, 4)).T[1:], np.zeros((3, 4))),
        (np.zeros((3, 4)), np.zeros((4, 4)).T[1:]),
        (np.zeros(4, ">f4"), np.zeros(4, ">f4")),
        (np.zeros(4, "f4"), np.zeros(4, "f8")),
        (np.zeros(4), np.zeros((4, 1))),
    ],
)
def test_a_pair_is_not_small_when_it_is_large_empty_or_laid_out_otherwise(
    reference: np.ndarray, candidate: np.ndarray
) -> None:
    assert not is_small(reference, candidate)


def test_a_pair_is_small_up_to_a_size_when_it_lies_plainly_in_memory() -> None:
    ones = np.ones((2, 3))
    assert is_small(ones, ones.copy())
    assert is_small(np.ones(1), np.ones(1))
    assert is_small(np.ones(SMALL), np.ones(SMALL))


@pytest.mark.parametrize("way", WAYS)
def test_small_pairs_that_need_a_closer_look_keep_their_limit(way: str) -> None:
    lost, other = np.array([1.0, np.nan, 3.0]), np.array([2.0, 1.0, 3.0])
    with measured_by(way):
        (found,) = measure_small([(lost, other, 0.5)])
        assert (found.limit, found.beyond_limit, found.nonfinite_mismatched) == (0.5, 1, 1)
        assert found == measure_arrays(lost, other, limit=0.5)
