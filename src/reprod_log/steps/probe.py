"""Probe: weights and gradients that show what an optimizer does, the same on both sides without any map of names.

Every number is made from the element of the weight at its place. Sides with equal weights, in whatever layout and under
whatever names, therefore get equal numbers at equal places.
"""

from __future__ import annotations

import numpy as np

from reprod_log.capture import to_numpy
from reprod_log.frameworks.module_tree import Tree
from reprod_log.recording import Array
from reprod_log.transfer.frameworks import framework_of

_EXPONENTS = (-7.0, 1.0)
"""Gradients from 1e-7 to 10: small ones show where eps stands, large ones whether something is clipped."""


def excite(tree: Tree) -> None:
    """Move every weight a little, so that none is zero: decay of a zero bias would not show."""
    for slot in tree.slots:
        weights = to_numpy(slot.tensor)
        moved = weights.astype(np.float32) + (0.05 + 0.1 * uniform(weights, 0)).astype(np.float32)
        framework_of(slot.node.content).write(slot.tensor, moved.astype(weights.dtype))


def gradient(weights: Array, step: int) -> Array:
    """A gradient for these weights: both signs, magnitudes spread evenly over eight powers of ten, new at each step."""
    low, high = _EXPONENTS
    exponent = low + (high - low) * uniform(weights, 2 * step + 1)
    sign = np.where(uniform(weights, 2 * step + 2) < 0.5, -1.0, 1.0)
    return (sign * 10.0**exponent).astype(np.float32)


def uniform(weights: Array, stream: int) -> Array:
    """A number in [0, 1) for each element, from its bits in float32 (a mixing function of integers, not a copy)."""
    # + 0.0 turns -0.0 into 0.0, which has other bits.
    bits = (weights.astype(np.float32) + np.float32(0.0)).view(np.uint32).astype(np.uint64)
    mixed = bits + np.uint64((stream + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
