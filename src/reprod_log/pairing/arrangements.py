"""Arrangements: the same numbers in another order, and in which."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np

from reprod_log.recording import Array

_MOST_SHIFTS = 64
_MOST_AXES = 4


def arrangement(ours: Array, theirs: Array, *, near: float = 0.0) -> str | None:
    """How the candidate's holds the same numbers in another order, up to a difference of `near`; None when unknown."""

    def same(one: Array, other: Array) -> bool:
        return bool(np.allclose(one, other, rtol=0, atol=near, equal_nan=True))

    if ours.shape != theirs.shape or not ours.size or same(ours, theirs):
        return None
    for axis in range(ours.ndim):
        if same(np.flip(ours, axis), theirs):
            return f"reversed along axis {axis}"
    for axis in range(ours.ndim):
        said = _moved(ours, theirs, axis, same)
        if said is not None:
            return said
    if 2 <= ours.ndim <= _MOST_AXES:
        for order in permutations(range(ours.ndim)):
            turned = ours.transpose(order)
            if order != tuple(range(ours.ndim)) and turned.shape == theirs.shape and same(turned, theirs):
                return f"transposed, axes {', '.join(map(str, order))}"
            if turned.shape != theirs.shape and same(turned.reshape(theirs.shape), theirs):
                return (
                    f"axes {', '.join(map(str, order))} read as if they were in order (a reshape for a transposition)"
                )
    return _permuted(ours, theirs, same)


def _moved(ours: Array, theirs: Array, axis: int, same: Callable[[Array, Array], bool]) -> str | None:
    size = ours.shape[axis]
    for by in range(1, min(size, _MOST_SHIFTS)):
        if not same(np.roll(ours, by, axis), theirs):
            continue
        left, right = min(by, size - by), by <= size - by
        # What comes in at the one end went out at the other: filling, when it is all one value.
        came = np.take(theirs, range(left) if right else range(size - left, size), axis)
        if same(came, np.broadcast_to(came.flat[0], came.shape)):
            return f"moved by {left} along axis {axis}, {'right' if right else 'left'} (padding on the other side?)"
        return f"turned by {by} along axis {axis}: its parts change places (the order of a concatenation?)"
    return None


def _permuted(ours: Array, theirs: Array, same: Callable[[Array, Array], bool]) -> str | None:
    for axis in range(ours.ndim):
        if ours.shape[axis] > 1:
            left, right = (np.moveaxis(one, axis, 0).reshape(ours.shape[axis], -1) for one in (ours, theirs))
            orders = [np.lexsort(one.T[::-1]) for one in (left, right)]
            if left.shape[1] > 1 and same(left[orders[0]], right[orders[1]]):
                return f"permuted along axis {axis}"
    return None
