"""The pass in numpy, block by block: whatever a block holds and wherever it stands, exact arithmetic finds the same."""

from __future__ import annotations

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from agreement import assert_same
from test_measure_arrays import assert_as_exact
from ways import WAYS, measured_by

from reprod_log.measure.fused import measure_arrays

NAN, INF = math.nan, math.inf
SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
TEN = np.arange(1.0, 11.0)


def with_value(value: float, *places: int) -> np.ndarray:
    changed = TEN.copy()
    changed[list(places)] = value
    return changed


CASES: dict[str, tuple[object, object]] = {
    **{f"{value} at {place}": (with_value(value, place), TEN) for place in (0, 3, 4, 9) for value in (NAN, INF)},
    "NaN in the candidate": (TEN, with_value(NAN, 3, 4)),
    "one equal infinity among NaN": ([NAN] * 5 + [INF] + [NAN] * 4, [NAN] * 5 + [INF] + [NAN] * 4),
    "two equal infinities among NaN": ([NAN] * 5 + [INF, NAN, NAN, INF], [NAN] * 5 + [INF, NAN, NAN, INF]),
    "only NaN and infinities on one side": ([NAN, NAN, NAN, INF, -INF], [1.0, 2.0, 3.0, 4.0, 5.0]),
    "the same largest difference in two blocks": (np.zeros(12), [0, 0, 0, 1.0, 0, 0, 2.0, 2.0, 0, 0, 2.0, 0]),
    "the largest difference after a NaN": (np.zeros(12), [0, 0, 0, 1.0, 0, NAN, 2.0, 2.0, 0, 0, 2.0, 0]),
    "far from zero": (1e9 + TEN, 1e9 + TEN + 1),
    "around zero": ([-3.0, -1.0, 1.0, 3.0], [-2.0, 0.0, 2.0, 4.0]),
    "equal values whose mean rounds": (np.full(7, 0.1), np.full(7, 0.1)),
    "equal values whose mean rounds, moved": (np.full(11, 0.7), np.full(11, 0.3)),
    "real against complex": (np.array([-3.0, 2.0], np.float32), np.array([1 + 0j, 4j], np.complex64)),
    "float32 against float64": (np.array([-3.0, 2.0], np.float32), np.zeros(2)),
    "differences of several octaves": (np.zeros(8), [0.0, 1.0, 1.5, 2.0, 0.25, 3.9, 0.0, -1.0]),
    "long doubles of several octaves": (
        np.zeros(8, np.longdouble),
        np.array([0.0, 1.0, 1.5, 2.0, 0.25, 3.9, 0.0, -1.0], np.longdouble),
    ),
    "subnormal differences": (np.zeros(6), [0.0, 5e-324, 1e-323, SMALLEST_NORMAL / 2, SMALLEST_NORMAL, 1.0]),
    "the smallest normal difference": (np.zeros(3), [0.0, 0.0, SMALLEST_NORMAL]),
    "zeros on both sides": ([0.0, 0.0, 2.0, 4.0], [0.0, 0.0, 3.0, 5.0]),
    "a reference of zero": ([0.0, 0.0], [1.0, 0.0]),
    "signs of zero": ([0.0, -0.0, 0.0], [-0.0, 0.0, 0.0]),
    "at a right angle": ([2.0, 0.0], [0.0, 3.0]),
    "at half a right angle": ([1.0, 0.0], [1.0, 1.0]),
    "mirrored": ([3.0, 4.0], [4.0, 3.0]),
    "opposite": ([1.0, 2.0], [-1.0, -2.0]),
    "candidate of zeros": ([1.0, 0.0], [0.0, 0.0]),
}


@pytest.mark.parametrize("block", [1, 3, 4, 100])
@pytest.mark.parametrize("name", CASES)
def test_every_block_adds_what_exact_arithmetic_finds(name: str, block: int) -> None:
    reference, candidate = (np.asarray(side) for side in CASES[name])
    with measured_by("numpy"):
        for limit in (None, 0.0, 1.0, 9.0):
            found = measure_arrays(reference, candidate, limit=limit, block=block)
            assert_as_exact(found, reference, candidate, limit=limit)
    for side in (found.reference, found.candidate):
        # Rounding may put the mean of equal values one step outside of them; it must not stay there.
        assert side.min <= side.mean <= side.max or math.isnan(side.mean)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 21])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex128"])
def test_one_element_that_differs_is_found_wherever_it_stands(size: int, dtype: str) -> None:
    ours = np.arange(1, size + 1).astype(dtype)
    with measured_by("numpy"):
        assert measure_arrays(ours, ours.copy(), block=64).identical
        for place in range(size):
            theirs = ours.copy()
            theirs[place] = 0
            found = measure_arrays(ours, theirs, block=64)
            assert found.worst is not None
            assert (found.differing, found.worst.index) == (1, (place,))


@pytest.mark.parametrize("size", [8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("dtype", [np.float64, np.longdouble])
def test_sums_take_in_every_element_of_a_long_block(size: int, dtype: type) -> None:
    ours = np.ones(size, dtype)
    theirs = np.arange(size, dtype=dtype)
    with measured_by("numpy"):
        found = measure_arrays(ours, theirs)
    squares = size * (size - 1) * (2 * size - 1) // 6
    assert found.candidate.rms == pytest.approx(math.sqrt(squares / size), rel=1e-12)
    assert found.reference.rms == 1.0
    assert found.cosine_distance == pytest.approx(1 - size * (size - 1) / 2 / math.sqrt(size * squares), rel=1e-9)


# Units of the last place.


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_steps_of_one_byte_floats_are_counted_by_rank(way: str, name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    with np.errstate(all="ignore"):
        every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    ordered = np.unique(every[np.isfinite(every)]).astype(dtype)
    middle = len(ordered) // 2
    with measured_by(way):
        found = measure_arrays(ordered[[0, middle, middle]], ordered[[5, middle - 3, middle]])
    assert (found.max_ulp, found.mean_ulp) == (5.0, 8.0 / 3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_steps_are_counted_through_zero_and_over_exponents(way: str, dtype: type) -> None:
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    tiny = np.array([1], bits).view(dtype)[0]
    one, two = np.array([1.0], dtype), np.array([2.0], dtype)
    step = float(int(two.view(bits)[0]) - int(one.view(bits)[0]))
    with measured_by(way):
        near = measure_arrays(np.array([0.0, tiny, 1.0, -0.0], dtype), np.array([tiny, -tiny, 1.0, 0.0], dtype))
        many = measure_arrays(np.repeat(one, 100_000), np.repeat(two, 100_000))
    assert (near.max_ulp, near.mean_ulp) == (2.0, 0.75)
    assert (many.max_ulp, many.mean_ulp) == (step, step), "sums leave the width of the dtype"


@pytest.mark.parametrize("way", WAYS)
def test_steps_of_nothing_comparable_are_unknown_and_of_nothing_none(way: str) -> None:
    with measured_by(way):
        unknown = measure_arrays(np.array([NAN, 1.0]), np.array([1.0, NAN]))
        empty = measure_arrays(np.zeros(0), np.zeros(0))
    assert unknown.max_ulp is not None
    assert math.isnan(unknown.max_ulp)
    assert (empty.max_ulp, empty.mean_ulp) == (0.0, 0.0)


# Layouts.

MATRIX = np.arange(60.0).reshape(5, 12)
LAID_OUT = {
    "rows": lambda matrix: matrix.copy(),
    "columns": np.asfortranarray,
    "float32": lambda matrix: matrix.astype(np.float32),
    "float32 columns": lambda matrix: np.asfortranarray(matrix.astype(np.float32)),
    "other bytes": lambda matrix: matrix.astype(">f8"),
    "every second": lambda matrix: np.repeat(matrix, 2, axis=1)[:, ::2],
    "backwards": lambda matrix: matrix[::-1, ::-1].copy()[::-1, ::-1],
}


@pytest.mark.parametrize("way", ["numpy", "kernel"])
@pytest.mark.parametrize(("ours", "theirs"), list(product(LAID_OUT, LAID_OUT)))
def test_layout_changes_nothing_in_blocks_of_any_size(way: str, ours: str, theirs: str) -> None:
    reference, candidate = LAID_OUT[ours](MATRIX), LAID_OUT[theirs](MATRIX[::-1] * 1.5)
    with measured_by(way):
        for block in (7, 60):
            assert_as_exact(measure_arrays(reference, candidate, block=block), reference, candidate)


@pytest.mark.parametrize("way", ["numpy", "kernel"])
@pytest.mark.parametrize("shape", [(260, 300), (300, 260), (2, (1 << 18) + 5)])
@pytest.mark.parametrize("layout", ["columns", "float32 columns", "other bytes", "every second", "backwards"])
def test_large_matrices_measure_like_their_copies(way: str, shape: tuple[int, int], layout: str) -> None:
    """Large enough that matrices in columns are turned in tiles; the last one row by row, because its rows are wide."""
    plain = np.arange(math.prod(shape), dtype=np.float64).reshape(shape) % 977
    candidate = LAID_OUT[layout](plain[::-1])
    with measured_by(way):
        for left, right in ((plain, candidate), (candidate, plain), (candidate, candidate[::-1])):
            straight = np.array(left, order="C"), np.array(right, order="C")
            assert_same(measure_arrays(left, right, limit=5.0), measure_arrays(*straight, limit=5.0))


def test_single_numbers_are_one_block_whatever_their_bytes() -> None:
    with measured_by("numpy"):
        found = measure_arrays(np.array(2.0), np.array(3.0, ">f8"))
    assert (found.count, found.max_abs, found.reference.max, found.candidate.max) == (1, 1.0, 2.0, 3.0)


# Memory that is kept from pair to pair.


def test_pairs_of_all_sizes_and_dtypes_measured_in_turn_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(5)
    pairs = [
        (rng.normal(size=size).astype(dtype), rng.normal(size=size).astype(dtype))
        for size in (1, 1000, 10, 100_000, 3)
        for dtype in (np.float64, np.complex128, np.float32)
    ]
    with measured_by("numpy"):
        alone = [measure_arrays(*pair) for pair in reversed(pairs)][::-1]
        for pair, wanted in zip(pairs, alone, strict=True):
            assert measure_arrays(*pair) == wanted
