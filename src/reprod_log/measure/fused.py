"""One pass over a pair of arrays that gives every statistic, and a second one for sums that float64 cannot hold.

Squares of float64 values beyond 1e154 overflow and those below 1e-162 vanish. Such pairs are walked over once more with
every value divided by a power of two, which loses nothing that would matter to the sums. The dot product is computed in
a second pass as well, for the few pairs whose cosine needs it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprod_log.errors import UsageError
from reprod_log.measure import kernel
from reprod_log.measure.blocks import BLOCK, Buffers, paired_blocks
from reprod_log.measure.dtypes import Arithmetic, Array, DtypePair, dtype_pair, measure_equality, notes_of
from reprod_log.measure.elements import worst_at
from reprod_log.measure.measurement import Measurement
from reprod_log.measure.numpy_pass import Widener, dot, tally
from reprod_log.measure.totals import SideTotals, Totals, finish
from reprod_log.messages import Message, message


def measure_arrays(
    reference: NDArray[Any],
    candidate: NDArray[Any],
    *,
    limit: float | None = None,
    block: int | None = None,
) -> Measurement:
    """Every statistic of `candidate - reference` for two arrays of one shape.

    Numbers of any dtype and layout are compared in arithmetic that holds both sides (see `dtypes.Arithmetic`);
    text and objects are compared for equality only. `limit` asks how many elements are further apart than that.
    Nothing is broadcast: different shapes are the caller's mistake and raise UsageError.
    `block` is how many elements are in work at a time; it changes nothing but the speed and the last digits of sums.
    """
    left, right = np.asarray(reference), np.asarray(candidate)
    if left.shape != right.shape:
        raise UsageError(
            f"The shapes differ: reference {left.shape}, candidate {right.shape}. "
            "Arrays are measured element by element and never broadcast; reshape or transpose one side on purpose."
        )
    if limit is not None and not limit >= 0:
        raise UsageError(f"limit={limit!r} is not a size of a difference. Pass a number that is 0 or larger.")
    pair = dtype_pair(left.dtype, right.dtype)
    if pair.arithmetic is Arithmetic.EQUALITY:
        return measure_equality(left, right, pair=pair, limit=limit)
    notes = notes_of(pair, left.size)
    run = kernel.run(left, right, pair=pair, limit=limit, block=block)
    if run is None:
        notes += _subnormal_note()
        totals = tally(left, right, pair=pair, limit=limit, block=block or BLOCK)
        worst = worst_at(totals.worst_at, left, right)
    else:
        worst = worst_at(run.worst_at, left, right)
        finished = run.measurement(pair=pair, worst=worst, limit=limit, notes=notes)
        if finished is not None:
            return finished
        totals = run.totals()
    second_look = _SecondLook(left, right, pair, block or BLOCK)
    if totals.out_of_range:
        second_look.rescale(totals)
    if totals.needs_dot:
        second_look.take_dot(totals)
    return finish(
        totals,
        names=(pair.reference, pair.candidate),
        worst=worst,
        limit=limit,
        has_ulp=pair.ulp_component is not None,
        notes=notes,
    )


def _subnormal_note() -> tuple[Message, ...]:
    """A note if this thread is set to treat subnormal numbers as zero, which numpy then does."""
    if sys.float_info.min * 0.5 > 0.0:
        return ()
    return (message("note.measure.flushed"),)


@dataclass(frozen=True)
class _Exponents:
    """Powers of two that bring values down (or up) to about 1: those of each side, and those that form pairs."""

    sides: tuple[int, int]
    pairs: tuple[int, int]
    difference: int


@dataclass(frozen=True)
class _SecondLook:
    """Another walk over a pair, with values divided by powers of two."""

    reference: Array
    candidate: Array
    pair: DtypePair
    block: int

    def rescale(self, totals: Totals) -> None:
        """Replace the totals' sums by ones that neither overflowed nor vanished."""
        with np.errstate(all="ignore"):
            exponents = self._exponents()
            self._retake_sides(totals, exponents)
            self._retake_differences(totals, exponents)

    def take_dot(self, totals: Totals) -> None:
        """Add the dot product, divided by both sides' powers of two, to the totals."""
        total = 0.0
        with np.errstate(all="ignore"):
            for left, right in self._finite_pairs():
                a, b = _times(left, -totals.reference_exponent), _times(right, -totals.candidate_exponent)
                total += dot(a.real.copy(), b.real.copy())
                if a.dtype.kind == "c":
                    total += dot(a.imag.copy(), b.imag.copy())
        totals.dot = total

    def _blocks(self) -> Iterator[tuple[Array, Array]]:
        """The wide values of both sides, block by block; each is valid until the next."""
        widener = Widener(self.pair, size=max(1, min(self.block, self.reference.size)), buffers=Buffers())
        for _, left, right in paired_blocks(self.reference, self.candidate, size=self.block):
            yield widener.values(left, right)

    def _finite_pairs(self) -> Iterator[tuple[Array, Array]]:
        """Block by block, the values where both sides are finite."""
        for a, b in self._blocks():
            finite = np.isfinite(a) & np.isfinite(b)
            yield a[finite], b[finite]

    def _exponents(self) -> _Exponents:
        sides: tuple[list[int], list[int]] = ([], [])
        pairs: tuple[list[int], list[int]] = ([], [])
        differences: list[int] = []
        for a, b in self._blocks():
            finite = np.isfinite(a), np.isfinite(b)
            both = finite[0] & finite[1]
            difference = a[both] - b[both]
            halved = not np.isfinite(difference).all()
            if halved:
                difference = _times(a[both], -1) - _times(b[both], -1)
            for k, values in enumerate((a, b)):
                sides[k].append(_exponent(values[finite[k]]))
                pairs[k].append(_exponent(values[both]))
            differences.append(_exponent(difference) + int(halved))
        return _Exponents((max(sides[0]), max(sides[1])), (max(pairs[0]), max(pairs[1])), max(differences))

    def _retake_sides(self, totals: Totals, exponents: _Exponents) -> None:
        retaken = SideTotals(exponent=exponents.sides[0]), SideTotals(exponent=exponents.sides[1])
        for block in self._blocks():
            for side, values in zip(retaken, block, strict=True):
                finite = values[np.isfinite(values)]
                if finite.size == 0:
                    continue
                scaled = _times(finite, -side.exponent)
                real = np.abs(scaled) if scaled.dtype.kind == "c" else scaled
                mean = float(real.mean())
                side.add(
                    real.size,
                    low=float(real.min()),
                    high=float(real.max()),
                    total=float(np.add.reduce(real)),
                    squares=dot(real, real),
                    deviations=float(np.add.reduce((real - mean) ** 2)),
                )
        for side, new in zip((totals.reference, totals.candidate), retaken, strict=True):
            side.sum, side.squares, side.deviations = new.sum, new.squares, new.deviations
            side.exponent = new.exponent

    def _retake_differences(self, totals: Totals, exponents: _Exponents) -> None:
        halve = int(not all(map(math.isfinite, (totals.max_abs, totals.reference.abs_max, totals.candidate.abs_max))))
        sums = dict.fromkeys(("abs", "squares", "reference", "candidate", "relative"), 0.0)
        largest = 0.0
        for left, right in self._finite_pairs():
            difference = np.abs(_times(_times(left, -halve) - _times(right, -halve), halve - exponents.difference))
            a, b = np.abs(_times(left, -exponents.pairs[0])), np.abs(_times(right, -exponents.pairs[1]))
            sums["abs"] += float(np.add.reduce(difference))
            sums["squares"] += dot(difference, difference)
            sums["reference"] += dot(a, a)
            sums["candidate"] += dot(b, b)
            if halve and difference.size:
                relative = _relative(left, right)
                sums["relative"] += float(np.add.reduce(relative))
                largest = max(largest, float(relative.max()))
        totals.exponent = exponents.difference
        totals.sum_abs, totals.squares = sums["abs"], sums["squares"]
        totals.reference_squares, totals.candidate_squares = sums["reference"], sums["candidate"]
        totals.reference_exponent, totals.candidate_exponent = exponents.pairs
        if halve:
            totals.sum_rel, totals.max_rel = sums["relative"], largest


def _exponent(values: Array) -> int:
    """The smallest e such that every magnitude is below 2^e; -20,000 (below any) where all are zero."""
    if values.dtype.kind == "c":
        # A magnitude is at most the square root of two times its larger part.
        return _exponent(values.view(values.real.dtype)) + 1
    largest = np.abs(values).max(initial=0)
    return int(np.frexp(largest)[1]) if largest > 0 else -20_000


def _relative(left: Array, right: Array) -> Array:
    """|left - right| / |left|, also where the difference alone overflows."""
    size, difference = np.abs(left), np.abs(left - right)
    halves = np.abs(_times(left, -1) - _times(right, -1)) / np.abs(_times(left, -1))
    whole = np.isfinite(size) & np.isfinite(difference)
    return np.where(left == right, 0.0, np.where(whole, difference / size, halves))


def _times(values: Array, exponent: int) -> Array:
    """values * 2^exponent, also where 2^exponent itself would leave the range."""
    if values.dtype.kind != "c":
        result: Array = np.ldexp(values, exponent)
        return result
    out = np.empty_like(values)
    out.real = np.ldexp(values.real, exponent)
    out.imag = np.ldexp(values.imag, exponent)
    return out
