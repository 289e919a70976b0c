"""The numpy pass: walks over a pair in cache-sized blocks with reused buffers and adds up the totals."""

from __future__ import annotations

import math

import numpy as np

from reprod_log.measure.blocks import BLOCK, paired_blocks
from reprod_log.measure.differences import Widened, Widener
from reprod_log.measure.dtypes import Array, DtypePair
from reprod_log.measure.room import Room, room
from reprod_log.measure.totals import SideTotals, Totals
from reprod_log.measure.ulp import ulp_distances

# BLAS libraries start threads for longer dot products, and then the last digits depend on how many.
_DOT = 8192
# With less than this share of the squares left, the variance has lost digits and is taken again around the mean.
_CANCELLED = 0.05


def tally(reference: Array, candidate: Array, *, pair: DtypePair, limit: float | None, block: int = BLOCK) -> Totals:
    """The totals of a pair of numeric arrays of equal shape."""
    size = max(1, min(block, reference.size))
    with room() as memory, np.errstate(all="ignore"):
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

    def __init__(self, pair: DtypePair, *, limit: float | None, count: int, size: int, memory: Room) -> None:
        self.totals = Totals(count)
        self._pair = pair
        self._limit = limit
        self._widener = Widener(pair, size=size, room=memory)
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
        nan_both = int(np.count_nonzero(nan[0] & nan[1]))
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


def _same_bytes(left: Array, right: Array) -> bool:
    """Whether two contiguous blocks of one dtype are the same bit for bit; usually decided by the first elements."""
    if left[:8].tobytes() != right[:8].tobytes():
        return False
    a, b = left.view(np.uint8), right.view(np.uint8)
    whole = a.size - a.size % 8
    return bool((a[:whole].view(np.uint64) == b[:whole].view(np.uint64)).all() and (a[whole:] == b[whole:]).all())
