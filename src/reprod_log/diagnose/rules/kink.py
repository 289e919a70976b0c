"""An activation on the other side of zero: rounding, although the gradients behind it jump.

The first step and layer are looked for where a few elements of a ReLU-like layer's input have another sign in the
candidate, with values that rounding can move across zero. What differs after that is its consequence. A ReLU that is
called as a function has no layer of its own; its result shows the same: exact zeros on one side only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Both, Material
from reprod_log.record import Array, Key

_KINKED = ("relu", "leaky_relu", "prelu", "relu6", "hardtanh", "hardswish", "hardsigmoid")
_NEAR = 1e-4
"""Of the tensor's size: what float32 rounding, grown over a few steps, can move."""
_JUMP = 1e-5
"""Relative difference of a tensor, about a hundred roundings."""
_ZEROS = 0.01
"""The share of exact zeros from which a tensor is taken for the result of a ReLU."""


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not _visible(case):
        return
    for key, both in _activations(material):
        flipped = _flipped(both, is_input=material.layers[key.path][0].kind in _KINKED)
        count = int(flipped.sum())
        if not count or not _tiny(both, flipped):
            continue
        ours, theirs = (float(one[flipped][0]) for one in both)
        yield Finding(
            rule="kink",
            kind="remark",
            cause=f"{count} of {flipped.size} activations changed side at step {key.step}, layer {key.path}: rounding",
            evidence=f"the first is {ours:+.1e} in the reference and {theirs:+.1e} in the candidate",
            confidence="consistent",
            advice="nothing to mend: the gradients of one side lack this activation's share from here on, so later "
            "values may differ by far more than rounding; the float64 passes, where it does not happen, decide",
            keys=(str(key),),
        )
        return


def _visible(case: Case) -> bool:
    """Whether anything differs by more than rounding; without that a flip has no consequence worth reading for."""
    return any(row.measurement is not None and not row.measurement.rel_l2 <= _JUMP for row in case.rows.values())


def _activations(material: Material) -> Iterator[tuple[Key, Both]]:
    """What layers were given, step by step in execution order, in the precision in which the program runs."""
    for pair in material.pairing.pairs:
        key = pair.reference.key
        if key.phase == "forward" and not key.run and key.role.startswith("input") and key.path in material.layers:
            both = material.values(key)
            if both is not None and both[0].size:
                yield key, both


def _flipped(both: Both, *, is_input: bool) -> Array:
    """Where the two are on different sides of zero: before a kinked layer by sign, behind a function by zeros."""
    ours, theirs = both
    if is_input:
        return np.asarray(np.sign(ours) * np.sign(theirs) < 0)
    zero = ours == 0, theirs == 0
    rectified = all(side.mean() > _ZEROS for side in zero) and ours.min() >= 0 and theirs.min() >= 0
    return np.asarray((zero[0] != zero[1]) if rectified else np.zeros(ours.shape, bool))


def _tiny(both: Both, flipped: Array) -> bool:
    size = float(np.sqrt(np.mean(both[0] ** 2)))
    return all(float(np.abs(one[flipped]).max()) <= _NEAR * size for one in both)
