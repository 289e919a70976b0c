"""Cuts a pair of arrays of any layout into contiguous, native, one-dimensional blocks in C order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from reprod_log.measure.dtypes import Array, DType

# Measured on float32: below 16 K elements the calls cost more than the arithmetic, above 64 K the scratch
# buffers leave the second-level cache. Two threads share one interpreter well from here on.
BLOCK = 1 << 15


def in_place(array: Array) -> bool:
    """Whether the array's own memory can be read block by block, with no copy."""
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


def paired_blocks(
    reference: Array, candidate: Array, *, size: int = BLOCK, cast: DType | None = None
) -> Iterator[tuple[int, Array, Array]]:
    """Every element of both arrays, in C order, as (offset, reference block, candidate block).

    With `cast`, the blocks are of that dtype. A block may be overwritten by the next one, so it must be used up
    before the next is asked for.
    """
    if reference.size == 0:
        return
    if cast is None and in_place(reference) and in_place(candidate):
        left, right = reference.reshape(-1), candidate.reshape(-1)
        for offset in range(0, left.size, size):
            yield offset, left[offset : offset + size], right[offset : offset + size]
        return
    wanted: Any = ["readonly", "contig", "aligned", "nbo"]  # numpy's stub does not know "contig"
    gathered = np.nditer(
        [reference, candidate],
        flags=["external_loop", "buffered"],
        op_flags=[wanted, wanted],
        op_dtypes=[cast or reference.dtype.newbyteorder("="), cast or candidate.dtype.newbyteorder("=")],
        casting="unsafe",
        order="C",
        buffersize=size,
    )
    offset = 0
    for left, right in gathered:
        yield offset, left, right
        offset += left.size
