"""The header of numpy's `.npy` format, from a file or from a member of an archive."""

from __future__ import annotations

import tokenize
from typing import Any, Protocol

import numpy as np

from reprod_log.errors import UnreadableFile

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]


class Readable(Protocol):
    """The least that a header is read from."""

    def read(self, size: int, /) -> bytes: ...


def read_header(file: Readable, *, where: str) -> Header:
    """Shape, whether the order is Fortran's, and dtype. numpy reads it as a literal, of at most 10,000 characters."""
    source: Any = file
    try:
        version = np.lib.format.read_magic(source)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(source)
        else:
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(source)
    except (
        ValueError, KeyError, SyntaxError, TypeError, AttributeError, IndexError, OverflowError, RecursionError,
        MemoryError, tokenize.TokenError,
    ) as error:  # fmt: skip
        # numpy takes the text apart with Python's own tools, each of which has its own way to refuse.
        raise UnreadableFile(f"{where} is not a whole .npy file: {error}. Was it cut short?") from error
    if not all(type(length) is int and 0 <= length < 1 << 63 for length in shape) or len(shape) > 64:
        raise UnreadableFile(f"{where} has an impossible shape")
    return shape, fortran, dtype
