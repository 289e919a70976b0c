"""How one stored tensor becomes the canonical tensors of its layer, and back.

Every layout difference known so far between frameworks is a permutation of the elements: axes swapped, dimensions
flattened, space mirrored, heads apart, several matrices packed into one. So one small value describes them all, is its
own inverse recipe, and transfers gradients and optimizer moments exactly as it transfers weights (the Jacobian of a
permutation is the permutation itself).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reprod_log.messages import Message, message
from reprod_log.recording import Array

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Transform:
    """The recipe from a stored tensor to its canonical parts: fold, permute axes, mirror, flatten, cut along axis 0.

    `lead` says how many dimensions of size one a flattened tensor is stored with in front, where the layer type fixes
    that. `fold` is the first of two stored axes (heads and their width) that are one canonical axis. Where the space is
    `mirrored`, the positions of a kernel are stored in the opposite order.
    """

    axes: Shape | None = None
    flat: bool = False
    parts: int = 1
    lead: int = 0
    fold: int | None = None
    mirrored: bool = False

    def fits(self, shape: Shape) -> bool:
        """Whether a tensor of this shape can be taken apart by this recipe."""
        if self.fold is not None and self.fold + 1 >= len(shape):
            return False
        if self.axes is not None and len(self.axes) != len(self._folded(shape)):
            return False
        whole = self._whole(shape)
        return self.parts == 1 or (len(whole) > 0 and whole[0] % self.parts == 0)

    def part_shape(self, shape: Shape) -> Shape:
        """The shape that every canonical part of a stored tensor of this shape has."""
        whole = self._whole(shape)
        return whole if self.parts == 1 else (whole[0] // self.parts, *whole[1:])

    def split(self, array: Array) -> tuple[Array, ...]:
        """The canonical parts of a stored tensor."""
        array = array.reshape(self._folded(array.shape))
        if self.axes is not None:
            array = array.transpose(self.axes)
        if self.mirrored:
            array = np.flip(array, tuple(range(2, array.ndim)))
        if self.flat:
            array = array.reshape(-1)
        return (array,) if self.parts == 1 else tuple(np.split(array, self.parts, axis=0))

    def join(self, parts: Sequence[Array], shape: Shape) -> Array:
        """The stored tensor of this shape, made from all of its canonical parts."""
        array = parts[0] if self.parts == 1 else np.concatenate(list(parts), axis=0)
        folded = self._folded(shape)
        permuted = folded if self.axes is None else tuple(folded[axis] for axis in self.axes)
        if self.flat:
            array = array.reshape(permuted)
        if self.mirrored:
            array = np.flip(array, tuple(range(2, array.ndim)))
        if self.axes is not None:
            array = array.transpose(tuple(int(axis) for axis in np.argsort(self.axes)))
        return np.ascontiguousarray(array).reshape(shape)

    def canonical_axis(self, axis: int | None) -> int | None:
        """Where an axis of the stored tensor ends up; None (all axes) stays None."""
        if axis is None or self.axes is None:
            return axis
        return self.axes.index(axis)

    def _folded(self, shape: Shape) -> Shape:
        if self.fold is None:
            return tuple(shape)
        return (*shape[: self.fold], shape[self.fold] * shape[self.fold + 1], *shape[self.fold + 2 :])

    def _whole(self, shape: Shape) -> Shape:
        shape = self._folded(shape)
        if self.axes is not None:
            shape = tuple(shape[axis] for axis in self.axes)
        return (int(np.prod(shape, dtype=np.int64)),) if self.flat else shape

    @property
    def steps(self) -> tuple[Message, ...]:
        """What it does to the elements, before anything is cut."""
        found = []
        if self.axes == (1, 0):
            found.append(message("view.transposed"))
        elif self.axes is not None:
            found.append(message("view.axes", axes=str(self.axes)))
        if self.mirrored:
            found.append(message("view.mirrored"))
        if self.flat:
            found.append(message("view.reshaped"))
        return tuple(found)


KEEP = Transform()
SWAP = Transform(axes=(1, 0))
FLAT = Transform(flat=True)
THREE = Transform(parts=3)
