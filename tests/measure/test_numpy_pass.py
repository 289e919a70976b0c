"""The pass in numpy, block by block: what each block adds to the totals, wherever in the arrays it stands."""

from __future__ import annotations

import math
from itertools import product
from unittest import mock

import numpy as np
import pytest

from reprod_log.measure import blocks
from reprod_log.measure.blocked import _same_bytes, dot, tally
from reprod_log.measure.blocks import paired_blocks
from reprod_log.measure.dtypes import dtype_pair
from reprod_log.measure.totals import Totals


def totals(reference: object, candidate: object, *, block: int = 4, limit: float | None = None) -> Totals:
    left, right = np.asarray(reference), np.asarray(candidate)
    return tally(left, right, pair=dtype_pair(left.dtype, right.dtype), limit=limit, block=block)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 21])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex128"])
def test_blocks_are_the_same_when_every_byte_is(size: int, dtype: str) -> None:
    ours = np.arange(1, size + 1).astype(dtype)
    assert _same_bytes(ours, ours.copy())
    for place in range(size):
        theirs = ours.copy()
        theirs[place] = 0
        assert not _same_bytes(ours, theirs)
        assert not _same_bytes(theirs, ours)
    assert not _same_bytes(ours, np.zeros_like(ours))


def test_zeros_of_other_signs_are_not_the_same_bytes() -> None:
    assert not _same_bytes(np.array([0.0]), np.array([-0.0]))


@pytest.mark.parametrize("size", [1, 8191, 8192, 8193, 16384, 20000])
def test_sum_of_products_takes_in_every_element(size: int) -> None:
    ones = np.ones(size)
    assert dot(ones, np.arange(size, dtype=np.float64)) == size * (size - 1) / 2
    assert dot(ones.astype(np.longdouble), ones.astype(np.longdouble)) == size


@pytest.mark.parametrize("place", [0, 3, 4, 9])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_value_that_is_not_finite_on_one_side_is_counted_wherever_it_stands(place: int, value: float) -> None:
    ours, theirs = np.arange(1.0, 11.0), np.arange(1.0, 11.0)
    ours[place] = value
    for left, right, sign in ((ours, theirs, 0), (theirs, ours, 1)):
        found = totals(left, right)
        side = (found.reference, found.candidate)[sign]
        assert (found.mismatched, found.pairs, side.nan + side.inf, side.finite) == (1, 9, 1, 9)
        assert (found.differing, found.sum_abs) == (0, 0.0)


def test_equal_infinity_is_the_worst_place_when_nothing_else_can_be_compared() -> None:
    ours = np.full(10, math.nan)
    ours[5] = math.inf
    found = totals(ours, ours.copy())
    assert (found.worst_at, found.max_abs, found.min_abs, found.equal_infinities, found.nan_both) == (5, 0.0, 0.0, 1, 9)
    ours[9] = math.inf
    assert totals(ours, ours.copy()).worst_at == 5


def test_worst_place_is_the_first_of_the_largest_difference() -> None:
    ours, theirs = np.zeros(12), np.zeros(12)
    theirs[[3, 6, 7, 10]] = [1.0, 2.0, 2.0, 2.0]
    assert (totals(ours, theirs).worst_at, totals(ours, theirs).max_abs) == (6, 2.0)
    theirs[5] = math.nan
    assert totals(ours, theirs).worst_at == 6


@pytest.mark.parametrize("block", [3, 100])
def test_deviations_keep_their_digits_far_from_zero(block: int) -> None:
    values = 1e9 + np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    found = totals(values, values + 1, block=block)
    for side in (found.reference, found.candidate):
        assert side.deviations == pytest.approx(17.5, rel=1e-9)
    spread = np.array([-3.0, -1.0, 1.0, 3.0])
    assert totals(spread, spread + 1).reference.deviations == pytest.approx(20.0, rel=1e-12)


def test_extremes_are_those_of_magnitudes_when_the_other_side_is_complex() -> None:
    found = totals(np.array([-3.0, 2.0], np.float32), np.array([1 + 0j, 4j], np.complex64))
    assert (found.reference.min, found.reference.max) == (2.0, 3.0)
    assert (found.candidate.min, found.candidate.max) == (1.0, 4.0)
    assert totals(np.array([-3.0, 2.0], np.float32), np.zeros(2)).reference.min == -3.0


@pytest.mark.parametrize("dtype", [np.float64, np.longdouble])
def test_differences_are_counted_by_their_octave(dtype: type) -> None:
    theirs = np.array([0.0, 1.0, 1.5, 2.0, 0.25, 3.9, 0.0, -1.0], dtype)
    assert totals(np.zeros(8, dtype), theirs, block=3).octaves == {0: 3, 1: 2, -2: 1}


def test_subnormal_differences_have_their_own_octave() -> None:
    tiny = float(np.finfo(np.float64).tiny)
    theirs = np.array([0.0, 5e-324, 1e-323, tiny / 2, tiny, 1.0])
    found = totals(np.zeros(6), theirs, block=6).octaves
    assert found == {-1074: 1, -1073: 1, -1023: 1, -1022: 1, 0: 1}
    assert totals(np.zeros(3), np.array([0.0, 0.0, tiny])).octaves == {-1022: 1}


def test_nothing_of_nothing_is_no_relative_difference() -> None:
    found = totals([0.0, 0.0, 2.0, 4.0], [0.0, 0.0, 3.0, 5.0])
    assert (found.sum_rel, found.max_rel) == (0.75, 0.5)
    assert totals([0.0, 0.0], [1.0, 0.0]).max_rel == math.inf


def test_only_what_is_beyond_the_limit_is_counted_in_every_block() -> None:
    theirs = np.array([0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 1.5, 0.0, 9.0])
    assert totals(np.zeros(9), theirs, limit=1.0).beyond == 4
    assert totals(np.zeros(9), theirs, limit=9.0).beyond == 0
    assert totals(np.zeros(9), theirs).beyond == 0


MATRIX = np.arange(60.0).reshape(5, 12)
LAID_OUT = {
    "rows": MATRIX.copy(),
    "columns": np.asfortranarray(MATRIX),
    "float32": MATRIX.astype(np.float32),
    "float32 columns": np.asfortranarray(MATRIX.astype(np.float32)),
    "other bytes": MATRIX.astype(">f8"),
    "every second": np.repeat(MATRIX, 2, axis=1)[:, ::2],
    "backwards": MATRIX[::-1, ::-1].copy()[::-1, ::-1],
}


@pytest.mark.parametrize(("large", "slab", "tile"), [(61, 1 << 18, (64, 128)), (60, 1 << 18, (2, 5)), (60, 24, (3, 4))])
def test_blocks_hold_every_element_in_order_whatever_the_layout(large: int, slab: int, tile: tuple[int, int]) -> None:
    casts = (None, np.dtype(np.float64))
    with mock.patch.multiple(blocks, _LARGE=large, _SLAB=slab, _TILE=tile):
        for ours, theirs, cast in product(LAID_OUT, LAID_OUT, casts):
            expected = 0
            for offset, left, right in paired_blocks(LAID_OUT[ours], LAID_OUT[theirs], size=7, cast=cast):
                assert offset == expected
                assert 0 < left.size == right.size <= 7
                for block, side in ((left, ours), (right, theirs)):
                    np.testing.assert_array_equal(block, MATRIX.reshape(-1)[offset : offset + block.size])
                    assert block.flags.c_contiguous
                    assert block.dtype == (cast or LAID_OUT[side].dtype.newbyteorder("="))
                expected += left.size
            assert expected == MATRIX.size


def test_transposed_matrices_are_turned_in_tiles_from_a_size_on() -> None:
    with mock.patch.object(blocks, "_turned", wraps=blocks._turned) as turning, mock.patch.object(blocks, "_LARGE", 60):
        for left, right, turned in (
            ("rows", "columns", 1),
            ("columns", "rows", 1),
            ("columns", "columns", 1),
            ("other bytes", "rows", 0),
            ("every second", "rows", 0),
        ):
            turning.reset_mock()
            list(paired_blocks(LAID_OUT[left], LAID_OUT[right]))
            assert turning.call_count == turned
        turning.reset_mock()
        list(paired_blocks(LAID_OUT["columns"][:, 1:], MATRIX[:, 1:]))
        assert turning.call_count == 0, "smaller than that"


def test_row_wider_than_a_slab_is_turned_row_by_row() -> None:
    wide = np.asfortranarray(np.arange(40.0).reshape(2, 20))
    with mock.patch.multiple(blocks, _LARGE=1, _SLAB=8):
        found = [(offset, left.copy()) for offset, left, _ in paired_blocks(wide, wide, size=100)]
    assert [offset for offset, _ in found] == [0, 20]
    np.testing.assert_array_equal(np.concatenate([block for _, block in found]), wide.reshape(-1))


def test_arrays_without_elements_have_no_blocks_and_single_numbers_one() -> None:
    assert list(paired_blocks(np.zeros((0, 3)), np.zeros((0, 3)))) == []
    ((offset, left, right),) = paired_blocks(np.array(2.0), np.array(3.0, ">f8"))
    assert (offset, left.tolist(), right.tolist()) == (0, [2.0], [3.0])
