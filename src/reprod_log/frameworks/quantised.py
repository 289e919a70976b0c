"""The values that quantised layers keep their weights and activations in, in any framework."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from reprod_log.recording import Array

_AS_NEAR = 1.01


@dataclass(frozen=True, eq=False)
class Grid:
    """The values that integers stand for: (integer - zero) * scale, one scale and zero per slice along an axis."""

    low: int
    high: int
    scale: Any = None
    """None: taken from the smallest and largest value each time."""
    zero: Any = None
    axis: int | None = None
    own: Array | None = None
    """What the candidate keeps, for weights."""

    @classmethod
    def of_kind(cls, kind: Any, scale: Any, zero: Any, axis: int | None = None) -> Grid:
        """The grid of all integers of a type."""
        info = np.iinfo(kind)
        return cls(int(info.min), int(info.max), np.asarray(scale, np.float32), np.asarray(zero, np.float32), axis)

    def __call__(self, values: Array) -> Array:
        """The values of the grid that are nearest to these; where what the candidate has is as near, that."""
        grid = self if self.scale is not None else self.ranged(values)
        return nearest(values, grid.values(grid.integers(values)).astype(values.dtype), self.own)

    def integers(self, values: Array) -> Array:
        """The integers that stand for these values."""
        scale, zero = (self._along(one, values) for one in (self.scale, self.zero))
        # As the kernels do it: nearest, ties to even, in single precision.
        steps = np.round(values.astype(np.float32) / scale) + zero
        return np.clip(steps, self.low, self.high)

    def values(self, integers: Array) -> Array:
        """What these integers stand for, in single precision."""
        scale, zero = (self._along(one, integers) for one in (self.scale, self.zero))
        return (integers.astype(np.float32) - zero) * scale

    def fitted(self, values: Array) -> Grid:
        """With the range that these values take; of activations half as many integers, and of weights that use so many.

        Engines take 7 bits of one factor, so that sums of products fit into 16.
        """
        half = replace(self, low=self.low // 2, high=(self.high + 1) // 2)
        stored = None if self.own is None else self.integers(self.own)
        is_half = stored is None or (stored.min() >= half.low and stored.max() <= half.high)
        return (half if is_half else self).ranged(values)

    def ranged(self, values: Array) -> Grid:
        """The same integers, with the range that these values take."""
        parts = values.astype(np.float32).reshape(1, -1)
        if self.axis is not None:
            parts = np.moveaxis(values, self.axis, 0).astype(np.float32).reshape(values.shape[self.axis], -1)
        least, most = np.minimum(parts.min(1), 0), np.maximum(parts.max(1), 0)
        reach = 2 * np.maximum(-least, most) if self.is_symmetric else most - least
        scale = np.where(reach == 0, 1, reach / (self.high - self.low)).astype(np.float32)
        zero = np.zeros_like(scale) if self.is_symmetric else np.round(self.low - least / scale)
        zero = np.clip(zero, self.low, self.high)
        if self.axis is None:
            scale, zero = scale[0], zero[0]
        return replace(self, scale=scale, zero=zero, own=None)

    @property
    def kind(self) -> str:
        """The name of its type."""
        return f"{'int' if self.low else 'uint'}{(self.high - self.low).bit_length()}"

    def equals(self, other: Grid) -> bool:
        """Whether it has the same values."""
        ends = (self.low, self.high) == (other.low, other.high)
        return ends and np.array_equal(self.scale, other.scale) and np.array_equal(self.zero, other.zero)

    @property
    def is_symmetric(self) -> bool:
        """Whether zero is in the middle of its integers."""
        return self.low < 0 and self.zero is not None and not np.any(self.zero)

    @property
    def is_positive(self) -> bool:
        """Whether it has no value below zero, so that rounding to it is an activation as well."""
        return self.zero is not None and bool(np.all(self.zero == self.low))

    def _along(self, one: Array, values: Array) -> Array:
        if self.axis is None:
            return one
        return one.reshape([-1 if place == self.axis else 1 for place in range(values.ndim)])


@dataclass(frozen=True, eq=False)
class Narrow:
    """The values of a narrow floating type, times a scale."""

    dtype: str
    scale: Array | None = None
    own: Array | None = None

    def __call__(self, values: Array) -> Array:
        scale = np.float32(1) if self.scale is None else self.scale.astype(np.float32)
        stored = (values.astype(np.float32) / scale).astype(np.dtype(self.dtype))
        return nearest(values, self.values(stored).astype(values.dtype), self.own)

    def values(self, stored: Array) -> Array:
        """What is stored, in single precision."""
        wide = stored.astype(np.float32)
        return wide if self.scale is None else wide * self.scale.astype(np.float32)

    def fitted(self, values: Array) -> Narrow:
        """With the range that these values take."""
        if self.scale is None:
            return replace(self, own=None)
        aligned = (1,) * (values.ndim - self.scale.ndim) + self.scale.shape
        over = tuple(place for place, size in enumerate(aligned) if size == 1)
        largest = np.abs(values.astype(np.float32)).max(over, keepdims=True).clip(1e-12)
        return replace(self, scale=largest / np.float32(ml_dtypes.finfo(self.dtype).max), own=None)  # type: ignore[no-untyped-call]


def nearest(values: Array, rounded: Array, own: Array | None) -> Array:
    """The rounded values; those that a candidate has instead where they are as near: halfway between two, either is."""
    if own is None:
        return rounded
    own = own.astype(values.dtype)
    return np.where(np.abs(own - values) <= _AS_NEAR * np.abs(rounded - values), own, rounded)
