"""Cuts a pair of arrays of any layout into contiguous, native, one-dimensional blocks in C order; their buffers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from reprod_log.measure.dtypes import Array, DType

# Measured on float32: one thread is fastest with 64 K to 128 K elements, above that the scratch buffers leave the cache
# (256 K: 1.3 times as long). Two threads need long calls, during which numpy lets go of the interpreter lock: with 64 K
# they are slower than one, with 128 K and 256 K they take about as long as each other.
BLOCK = 1 << 17

# A transposed matrix is turned in tiles of this many rows and columns, which stay in the first-level cache: 3 to 8
# times faster than row by row, where the columns of a matrix of 2^n rows all compete for the same few cache lines.
_TILE = (64, 128)
_LARGE = 1 << 16
# A slab of turned rows has at most this many elements.
_SLAB = 1 << 18

Blocks = Iterator[tuple[int, Array, Array]]


def in_place(array: Array) -> bool:
    """Whether the array's own memory can be read block by block, with no copy."""
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


def paired_blocks(reference: Array, candidate: Array, *, size: int = BLOCK, cast: DType | None = None) -> Blocks:
    """Every element of both arrays, in C order, as (offset, reference block, candidate block).

    With `cast`, the blocks are of that dtype. A block may be overwritten by the next one, so it must be used up
    before the next is asked for.
    """
    if reference.size == 0:
        return
    if cast is None and in_place(reference) and in_place(candidate):
        yield from _pieces(reference.reshape(-1), candidate.reshape(-1), size=size, start=0)
        return
    wanted = cast or reference.dtype.newbyteorder("="), cast or candidate.dtype.newbyteorder("=")
    if reference.size >= _LARGE and (_transposed(reference) or _transposed(candidate)):
        yield from _turned(reference, candidate, size=size, wanted=wanted)
        return
    flags: Any = ["readonly", "contig", "aligned", "nbo"]  # numpy's stub does not know "contig"
    gathered = np.nditer(
        # numpy 1.26 returns unfilled buffers for arrays without an axis.
        [np.atleast_1d(reference), np.atleast_1d(candidate)],
        flags=["external_loop", "buffered"],
        op_flags=[flags, flags],
        op_dtypes=wanted,
        casting="unsafe",
        order="C",
        buffersize=size,
    )
    offset = 0
    for left, right in gathered:
        yield offset, left, right
        offset += left.size


def _pieces(left: Array, right: Array, *, size: int, start: int) -> Blocks:
    for offset in range(0, left.size, size):
        yield start + offset, left[offset : offset + size], right[offset : offset + size]


def _transposed(array: Array) -> bool:
    return array.ndim == 2 and abs(array.strides[0]) < abs(array.strides[1])


def _turned(reference: Array, candidate: Array, *, size: int, wanted: tuple[DType, DType]) -> Blocks:
    """The blocks of two matrices, at least one of which lies in memory column by column."""
    rows, columns = reference.shape
    step = max(1, min(_TILE[0], _SLAB // columns))
    rooms = tuple(np.empty(step * columns, dtype) for dtype in wanted)
    for top in range(0, rows, step):
        left = _slab(reference[top : top + step], rooms[0])
        right = _slab(candidate[top : top + step], rooms[1])
        yield from _pieces(left, right, size=size, start=top * columns)


def _slab(part: Array, room: Array) -> Array:
    """Some rows of a matrix as one contiguous block, in `room` unless they lie there like that already."""
    if in_place(part) and part.dtype == room.dtype:
        return part.reshape(-1)
    flat = room[: part.size]
    out = flat.reshape(part.shape)
    if not _transposed(part):
        np.copyto(out, part, casting="unsafe")
        return flat
    tile = np.empty((_TILE[1], part.shape[0]), room.dtype)
    for left in range(0, part.shape[1], _TILE[1]):
        columns = part[:, left : left + _TILE[1]].T
        straight = tile[: columns.shape[0]]
        np.copyto(straight, columns, casting="unsafe")
        out[:, left : left + _TILE[1]] = straight.T
    return flat


class Buffers:
    """Buffers of one thread, used again from pair to pair.

    Getting fresh memory from the system and giving it back takes several times as long as the arithmetic on a tensor
    of a megabyte.
    """

    def __init__(self) -> None:
        self._kept: list[Array] = []
        self._given = 0

    def empty(self, size: int, dtype: DType) -> Array:
        """A buffer with anything in it."""
        nbytes = size * dtype.itemsize
        if self._given == len(self._kept):
            self._kept.append(np.empty(nbytes, np.uint8))
        elif self._kept[self._given].size < nbytes:
            self._kept[self._given] = np.empty(nbytes, np.uint8)
        buffer = self._kept[self._given][:nbytes].view(dtype)
        self._given += 1
        return buffer

    def release(self) -> None:
        """The buffers are no longer in use."""
        self._given = 0


class _ThreadBuffers(threading.local):
    free: Buffers | None = None


_THREAD_BUFFERS = _ThreadBuffers()


@contextmanager
def reused_buffers() -> Iterator[Buffers]:
    """This thread's buffers; others for a caller that asks while these are in use."""
    mine, _THREAD_BUFFERS.free = _THREAD_BUFFERS.free or Buffers(), None
    try:
        yield mine
    finally:
        mine.release()
        _THREAD_BUFFERS.free = mine
