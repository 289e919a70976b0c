"""The numpy pass: walks over a pair in cache-sized blocks with reused buffers and adds up the totals.

Differences are computed for every kind of arithmetic so that nothing wraps around and no two different values get the
difference 0. ULP distances say how many representable values lie between the two, counting one of the ends: the bits of
IEEE numbers, read as sign and magnitude, are in the order of their values, so the distance is a difference of integers.
Both zeros are the same number and have distance 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from reprod_log.measure.blocks import BLOCK, Buffers, paired_blocks, reused_buffers
from reprod_log.measure.dtypes import Arithmetic, Array, DType, DtypePair, integer_bits
from reprod_log.measure.totals import SideTotals, Totals

# BLAS libraries start threads for longer dot products, and then the last digits depend on how many.
_DOT = 8192
# With less than this share of the squares left, the variance has lost digits and is taken again around the mean.
_CANCELLED = 0.05

_LOW_HALF = np.uint64(0xFFFFFFFF)

_BITS_AS_INTEGER: dict[int, DType] = {2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def tally(reference: Array, candidate: Array, *, pair: DtypePair, limit: float | None, block: int = BLOCK) -> Totals:
    """The totals of a pair of numeric arrays of equal shape."""
    size = max(1, min(block, reference.size))
    with reused_buffers() as memory, np.errstate(all="ignore"):
        walk = _Walk(pair, limit=limit, count=reference.size, size=size, memory=memory)
        for offset, left, right in paired_blocks(reference, candidate, size=size):
            walk.add(offset, left, right)
        return walk.finish()


def dot(left: Array, right: Array) -> float:
    """The sum of products of two contiguous blocks, in an order that no thread count changes."""
    if left.dtype != np.float64:
        return float(np.add.reduce(left * right))
    n = left.size
    if n <= _DOT:
        return float(np.dot(left, right))
    rows = n // _DOT
    body = rows * _DOT
    parts = np.matmul(left[:body].reshape(rows, 1, _DOT), right[:body].reshape(rows, _DOT, 1))
    total = float(np.add.reduce(parts, axis=None))
    return total + float(np.dot(left[body:], right[body:])) if body < n else total


class _Walk:
    """One pass in progress."""

    def __init__(self, pair: DtypePair, *, limit: float | None, count: int, size: int, memory: Buffers) -> None:
        self.totals = Totals(count)
        self._pair = pair
        self._limit = limit
        self._widener = Widener(pair, size=size, buffers=memory)
        # Twice the room for the two components of a complex number.
        self._scratch = memory.empty(2 * size if pair.wide.kind == "c" else size, self._widener.real_dtype)
        self._mask = memory.empty(size, np.dtype(np.bool_))
        self._exponents = np.zeros(2048, np.int64)
        if pair.ulp_component is not None and pair.wide.kind == "c":
            self.totals.ulp_per_element = 2

    def add(self, offset: int, left: Array, right: Array) -> None:
        """Take in one block."""
        if self._pair.same and _same_bytes(left, right) and self._add_equal(offset, left):
            return
        wide = self._widener.widened(left, right)
        squares = dot(wide.reference, wide.reference), dot(wide.candidate, wide.candidate)
        if self._pair.may_be_nonfinite and not math.isfinite(squares[0] + squares[1]):
            finite = np.isfinite(left), np.isfinite(right)
            # Finite values whose squares overflow stay here; the caller notices them by their size.
            if not (finite[0].all() and finite[1].all()):
                self._add_nonfinite(offset, left, right, wide=wide, finite=finite)
                return
        self._add_side(self.totals.reference, wide.reference, squares[0], raw=left)
        self._add_side(self.totals.candidate, wide.candidate, squares[1], raw=right)
        self._add_pairs(wide, squares, raw=(left, right), offset=offset)

    def finish(self) -> Totals:
        """The totals of everything that was taken in."""
        at = np.flatnonzero(self._exponents)
        self.totals.add_octaves(dict(zip((at - 1023).tolist(), self._exponents[at].tolist(), strict=True)))
        return self.totals

    def _add_equal(self, offset: int, block: Array) -> bool:
        """Take in a block that is the same on both sides, or say that it needs a closer look."""
        wide = self._widener.magnitudes(block)
        squares = dot(wide, wide)
        if not math.isfinite(squares):
            return False
        totals = self.totals
        self._add_side(totals.reference, wide, squares, raw=block, also=totals.candidate)
        totals.pairs += block.size
        totals.min_abs = 0.0
        totals.reference_squares += squares
        totals.candidate_squares += squares
        totals.offer_worst(0.0, offset)
        return True

    def _add_nonfinite(
        self, offset: int, left: Array, right: Array, *, wide: Widened, finite: tuple[Array, Array]
    ) -> None:
        """Take in a block with NaN or infinities: count them, and go on with the values that are left."""
        totals = self.totals
        for side, values, kept in (
            (totals.reference, wide.reference, finite[0]),
            (totals.candidate, wide.candidate, finite[1]),
        ):
            if kept.any():
                left_over = values[kept]
                self._add_side(side, left_over, dot(left_over, left_over), raw=left_over)
        a, b = self._widener.values(left, right)
        nan = np.isnan(a), np.isnan(b)
        both = finite[0] & finite[1]
        equal = ~both & (a == b)
        for side, is_nan, kept in ((totals.reference, nan[0], finite[0]), (totals.candidate, nan[1], finite[1])):
            side.nan += int(np.count_nonzero(is_nan))
            side.inf += int(np.count_nonzero(~kept & ~is_nan))
        nan_both = int(np.count_nonzero(nan[0] & nan[1] & _same_parts(a, b)))
        equal_infinities = int(np.count_nonzero(equal))
        positions = np.flatnonzero(both)
        totals.nan_both += nan_both
        totals.equal_infinities += equal_infinities
        totals.mismatched += left.size - nan_both - equal_infinities - positions.size
        if equal_infinities:
            totals.min_abs = 0.0
            totals.offer_worst(0.0, offset + int((both | equal).argmax()))
        if positions.size:
            left, right = left[positions], right[positions]
            wide = self._widener.widened(left, right)
            squares = dot(wide.reference, wide.reference), dot(wide.candidate, wide.candidate)
            self._add_pairs(wide, squares, raw=(left, right), offset=offset, positions=positions)

    def _add_side(
        self, side: SideTotals, values: Array, squares: float, *, raw: Array, also: SideTotals | None = None
    ) -> None:
        """Take in the finite values of one side; `also` is a second side with the very same values."""
        n = values.size
        total = float(np.add.reduce(values))
        deviations = squares - total * (total / n)
        if not deviations >= _CANCELLED * squares:
            centred = np.subtract(values, total / n, out=self._scratch[:n])
            deviations = dot(centred, centred)
        # float32 extremes are the same before widening and read half the memory.
        source = raw if raw.dtype == np.float32 and self._pair.wide == np.float64 else values
        low, high = float(np.minimum.reduce(source)), float(np.maximum.reduce(source))
        for taker in (side,) if also is None else (side, also):
            taker.add(n, low=low, high=high, total=total, squares=squares, deviations=deviations)

    def _add_pairs(
        self,
        wide: Widened,
        squares: tuple[float, float],
        *,
        raw: tuple[Array, Array],
        offset: int,
        positions: Array | None = None,
    ) -> None:
        """Take in the differences of finite pairs; `positions` says where in the block they stood."""
        totals, difference = self.totals, wide.difference
        n = difference.size
        largest, smallest = float(np.maximum.reduce(difference)), float(np.minimum.reduce(difference))
        differing = n
        if smallest == 0.0:
            differing = int(np.count_nonzero(np.not_equal(difference, 0.0, out=self._mask[:n])))
        totals.pairs += n
        totals.differing += differing
        totals.sum_abs += float(np.add.reduce(difference))
        totals.squares += dot(difference, difference)
        totals.reference_squares += squares[0]
        totals.candidate_squares += squares[1]
        totals.min_abs = min(totals.min_abs, smallest)
        if largest > totals.max_abs:
            at = int(difference.argmax())
            totals.offer_worst(largest, offset + (at if positions is None else int(positions[at])))
        if self._limit is not None and largest > self._limit:
            totals.beyond += int(np.count_nonzero(np.greater(difference, self._limit, out=self._mask[:n])))
        if differing:
            self._add_octaves(difference, zeros=n - differing)
            self._add_relative(difference, wide.reference)
        if self._pair.ulp_component is not None and differing:
            ulp_max, ulp_sum = ulp_distances(raw[0], raw[1], component=self._pair.ulp_component, scratch=self._scratch)
            totals.ulp_max = max(totals.ulp_max, ulp_max)
            totals.ulp_sum += ulp_sum

    def _add_octaves(self, difference: Array, *, zeros: int) -> None:
        if difference.dtype != np.float64:
            octaves = np.frexp(difference[difference > 0])[1] - 1
            found, counts = np.unique(octaves, return_counts=True)
            self.totals.add_octaves(dict(zip(found.tolist(), counts.tolist(), strict=True)))
            return
        exponents = np.right_shift(difference.view(np.int64), 52, out=self._scratch.view(np.int64)[: difference.size])
        counts = np.bincount(exponents)
        if counts[0] > zeros:
            subnormal = difference[(difference > 0.0) & (difference < np.finfo(np.float64).tiny)]
            self._exponents_below(subnormal)
        counts[0] = 0
        self._exponents[: counts.size] += counts

    def _exponents_below(self, subnormal: Array) -> None:
        """Subnormal numbers all have the same exponent bits, so their octave is read from the mantissa."""
        found, counts = np.unique(np.frexp(subnormal)[1] - 1, return_counts=True)
        self.totals.add_octaves(dict(zip(found.tolist(), counts.tolist(), strict=True)))

    def _add_relative(self, difference: Array, reference: Array) -> None:
        relative = np.abs(reference, out=self._scratch[: difference.size])
        np.divide(difference, relative, out=relative)
        total = float(np.add.reduce(relative))
        if math.isnan(total):
            # 0 / 0: both sides are zero there.
            np.copyto(relative, 0.0, where=np.equal(difference, 0.0, out=self._mask[: difference.size]))
            total = float(np.add.reduce(relative))
        self.totals.sum_rel += total
        self.totals.max_rel = max(self.totals.max_rel, float(np.maximum.reduce(relative)))


def _same_parts(left: Array, right: Array) -> Array | np.bool_:
    """Where complex numbers that are not finite have equal parts: one NaN part does not make up for the other."""
    if left.dtype.kind != "c":
        return np.True_
    parts = ((left.real, right.real), (left.imag, right.imag))
    real, imaginary = ((a == b) | (np.isnan(a) & np.isnan(b)) for a, b in parts)
    same: Array = real & imaginary
    return same


def _same_bytes(left: Array, right: Array) -> bool:
    """Whether two contiguous blocks of one dtype are the same bit for bit; usually decided by the first elements."""
    if left[:8].tobytes() != right[:8].tobytes():
        return False
    a, b = left.view(np.uint8), right.view(np.uint8)
    whole = a.size - a.size % 8
    return bool((a[:whole].view(np.uint64) == b[:whole].view(np.uint64)).all() and (a[whole:] == b[whole:]).all())


@dataclass(slots=True)
class Widened:
    """One block of both sides: real values (magnitudes for complex ones) and |candidate - reference|."""

    reference: Array
    candidate: Array
    difference: Array


class Widener:
    """Widens blocks of one pair of dtypes into buffers that are reused from block to block."""

    def __init__(self, pair: DtypePair, *, size: int, buffers: Buffers) -> None:
        self._pair = pair
        self._arithmetic = pair.arithmetic
        self._complex = pair.arithmetic in (Arithmetic.COMPLEX128, Arithmetic.CLONGDOUBLE)
        self._wide = tuple(buffers.empty(size, pair.wide) for _ in range(3))
        self.real_dtype = self._wide[0].real.dtype
        self._real = tuple(buffers.empty(size, self.real_dtype) for _ in range(3)) if self._complex else self._wide

    def values(self, reference: Array, candidate: Array) -> tuple[Array, Array]:
        """Both sides in the wide dtype, complex where they are complex."""
        n = reference.size
        left, right = self._wide[0][:n], self._wide[1][:n]
        np.copyto(left, reference, casting="unsafe")
        np.copyto(right, candidate, casting="unsafe")
        return left, right

    def magnitudes(self, block: Array) -> Array:
        """The real values (magnitudes for complex ones) of a block of either side; valid until the next call."""
        wide = self._wide[0][: block.size]
        np.copyto(wide, block, casting="unsafe")
        return np.abs(wide, out=self._real[0][: block.size]) if self._complex else wide

    def widened(self, reference: Array, candidate: Array) -> Widened:
        """Both sides' magnitudes and the absolute difference; valid until the next call."""
        left, right = self.values(reference, candidate)
        n = reference.size
        out = self._real[2][:n]
        if self._arithmetic is Arithmetic.INTEGER:
            _integer_distance(reference, candidate, out=out)
            return Widened(left, right, out)
        if self._arithmetic is Arithmetic.SPLIT:
            np.abs(_split_difference(reference, candidate), out=out)
            return Widened(left, right, out)
        wide = self._wide[2][:n]
        np.subtract(left, right, out=wide)
        if not self._complex:
            np.abs(wide, out=out)
            return Widened(left, right, out)
        if max(integer_bits(reference.dtype), integer_bits(candidate.dtype)) > 32:
            wide.real = _real_difference(reference, candidate)
        np.abs(wide, out=out)
        return Widened(
            np.abs(left, out=self._real[0][:n]),
            np.abs(right, out=self._real[1][:n]),
            out,
        )


def _integer_distance(reference: Array, candidate: Array, *, out: Array) -> None:
    """|a - b| of any two integer blocks, exact up to the one rounding to float64."""
    a_negative, a = _sign_and_magnitude(reference)
    b_negative, b = _sign_and_magnitude(candidate)
    opposite = a_negative != b_negative
    apart = np.where(a > b, a - b, b - a)
    np.copyto(out, apart)
    if opposite.any():
        total = a + b
        carry = (total < a).astype(np.uint64)
        # A sum of 65 bits is halved with its last bit kept as a sticky one, so that float64 rounds it only once.
        halved = (total >> np.uint64(1)) | (total & np.uint64(1)) | (carry << np.uint64(63))
        np.copyto(out, np.where(carry != 0, halved.astype(np.float64) * 2.0, total.astype(np.float64)), where=opposite)


def _sign_and_magnitude(block: Array) -> tuple[Array, Array]:
    negative = block < 0
    bits = block.astype(np.int64).view(np.uint64) if block.dtype.kind != "u" else block.astype(np.uint64)
    return negative, np.where(negative, ~bits + np.uint64(1), bits)


def _split_difference(reference: Array, candidate: Array) -> Array:
    """candidate - reference where one side is a 64-bit integer and the other one a float; the sign is not kept.

    float64 cannot hold every 64-bit integer, but it holds both halves; the float is first taken from the upper
    half, which is exact wherever the two numbers are close, and the lower half is added last.
    """
    integer, number = (reference, candidate) if integer_bits(reference.dtype) else (candidate, reference)
    negative, magnitude = _sign_and_magnitude(integer)
    upper = (magnitude & ~_LOW_HALF).astype(np.float64)
    lower = (magnitude & _LOW_HALF).astype(np.float64)
    wide = number.astype(np.float64)
    difference: Array = (upper - np.where(negative, -wide, wide)) + lower
    return difference


def _real_difference(reference: Array, candidate: Array) -> Array:
    """The real part of candidate - reference, up to its sign, where one side is complex and one a wide integer."""
    if integer_bits(reference.dtype):
        return _split_difference(reference, candidate.astype(np.complex128).real)
    return _split_difference(reference.astype(np.complex128).real, candidate)


def ulp_distances(reference: Array, candidate: Array, *, component: DType, scratch: Array) -> tuple[float, float]:
    """The largest and the sum of the ULP distances of two contiguous blocks of finite values of one dtype.

    `scratch` is overwritten and must have room for one of the blocks.
    """
    if component.itemsize == 1:
        ranks = _ranks(component)
        left, right = ranks[reference.view(np.uint8)], ranks[candidate.view(np.uint8)]
        distances = np.abs(left - right)
        return float(distances.max()), float(distances.sum(dtype=np.int64))
    signed = _BITS_AS_INTEGER[component.itemsize]
    unsigned: DType = np.dtype(f"u{component.itemsize}")
    left, right = reference.view(signed), candidate.view(signed)
    # Right for equal signs. Opposite signs wrap around to something of at least one exponent step, because a
    # finite value stays that far below the integers' end; so a small maximum proves that there are none.
    room = scratch.view(signed)[: left.size]
    np.subtract(left, right, out=room)
    distances = np.abs(room, out=room).view(unsigned)
    largest = int(distances.max())
    if largest >= _exponent_step(component):
        _fix_opposite_signs(left, right, distances)
        largest = int(distances.max())
    most = largest * distances.size
    # Sums that fit the integers' own width are several times faster than widened ones.
    within = unsigned if most < 1 << (8 * component.itemsize) else np.uint64 if most < 1 << 64 else np.float64
    return float(largest), float(np.add.reduce(distances, dtype=within))


def ulp_steps(reference: Array, candidate: Array, *, component: DType) -> Array:
    """The ULP distance of each element of two contiguous arrays of one dtype; of finite values only."""
    signed = _BITS_AS_INTEGER[component.itemsize]
    left, right = reference.view(signed), candidate.view(signed)
    distances = np.abs(np.subtract(left, right)).view(np.dtype(f"u{component.itemsize}"))
    _fix_opposite_signs(left, right, distances)
    return distances


@lru_cache(maxsize=8)
def _exponent_step(component: DType) -> int:
    if component.name == "bfloat16":
        return 1 << 7
    return 1 << int(np.finfo(component).nmant)


def _fix_opposite_signs(left: Array, right: Array, distances: Array) -> None:
    """Where the signs differ, the distance goes through zero: the sum of both magnitudes."""
    at = np.flatnonzero((left ^ right) < 0)
    magnitude = np.array(np.iinfo(left.dtype).max, left.dtype)
    distances[at] = (left[at] & magnitude).view(distances.dtype) + (right[at] & magnitude).view(distances.dtype)


@lru_cache(maxsize=32)
def _ranks(dtype: DType) -> Array:
    """For each of the 256 bit patterns, the rank of its value among all finite values of the dtype."""
    with np.errstate(all="ignore"):
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    finite = np.isfinite(values)
    ranks = np.zeros(256, np.int32)
    ranks[finite] = np.unique(values[finite], return_inverse=True)[1]
    ranks.setflags(write=False)
    return ranks
