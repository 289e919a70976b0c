"""Turns a block of raw values into float64 magnitudes and absolute differences, for every kind of arithmetic.

Nothing here wraps around, and no two different values get the difference 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprod_log.measure.dtypes import Arithmetic, Array, DtypePair, integer_bits
from reprod_log.measure.room import Room

_LOW_HALF = np.uint64(0xFFFFFFFF)


@dataclass(slots=True)
class Widened:
    """One block of both sides: real values (magnitudes for complex ones) and |candidate - reference|."""

    reference: Array
    candidate: Array
    difference: Array


class Widener:
    """Widens blocks of one pair of dtypes into buffers that are reused from block to block."""

    def __init__(self, pair: DtypePair, *, size: int, room: Room) -> None:
        self._pair = pair
        self._arithmetic = pair.arithmetic
        self._complex = pair.arithmetic in (Arithmetic.COMPLEX128, Arithmetic.CLONGDOUBLE)
        self._wide = tuple(room.empty(size, pair.wide) for _ in range(3))
        self.real_dtype = self._wide[0].real.dtype
        self._real = tuple(room.empty(size, self.real_dtype) for _ in range(3)) if self._complex else self._wide

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
