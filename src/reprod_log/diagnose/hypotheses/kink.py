"""An activation on the other side of zero: rounding, although the gradients behind it jump.

The first step and layer are looked for where a few elements around a ReLU-like layer have another sign in the
candidate, with values that rounding can move across zero. What differs after that is its consequence. A ReLU that is
called as a function has no layer of its own; it is known by a layer whose output, rectified, is what another is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Both, Material
from reprod_log.layers.lookup import layer_kind
from reprod_log.recording import Array, Key

_NEAR = 1e-4
"""Of the tensor's size: what float32 rounding, grown over a few steps, can move."""
_JUMP = 1e-5
"""Relative difference of a tensor, about a hundred roundings."""


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    if material is None or not _visible(case):
        return
    for key, both in _around_kinks(material):
        flipped = np.asarray(np.sign(both[0]) != np.sign(both[1]))
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
            keys=(key,),
        )
        return


def _visible(case: Case) -> bool:
    """Whether anything differs by more than rounding; without that a flip has no consequence worth reading for."""
    return any(row.measurement is not None and not row.measurement.rel_l2 <= _JUMP for row in case.rows.values())


def _around_kinks(material: Material) -> Iterator[tuple[Key, Both]]:
    """What goes into kinks or comes out of them, step by step in execution order, in the precision of the program."""
    rectified = _rectified(material)
    for pair in material.pairing.pairs:
        key = pair.reference.key
        if key.phase != "forward" or key.run or key.path not in material.layers:
            continue
        row = layer_kind(material.layers[key.path][0].kind)
        kinked = row is not None and row.kinked
        if (kinked or (key.path in rectified and key.role == "output")) and (both := material.values(key)) is not None:
            yield key, both


def _rectified(material: Material) -> frozenset[str]:
    """Layers whose output goes through a ReLU that is no layer: in the first step another is given just that."""
    outputs: dict[str, Array] = {}
    found = set()
    for entry in material.reference.of_run(""):
        key = entry.key
        if key.phase != "forward" or key.step != material.steps[0] or entry.dtype not in ("float32", "float64"):
            continue
        if key.role == "output":
            outputs[key.path] = entry.array()
        elif key.role.startswith("input") and bool(((given := entry.array()) == 0).any()) and given.min() >= 0:
            found |= {path for path, one in outputs.items() if _is_rectified(one, given)}
    return frozenset(found)


def _is_rectified(output: Array, given: Array) -> bool:
    return output.size == given.size and bool(np.array_equal(np.maximum(output, 0).ravel(), given.ravel()))


def _tiny(both: Both, flipped: Array) -> bool:
    size = float(np.sqrt(np.mean(both[0] ** 2)))
    return all(float(np.abs(one[flipped]).max()) <= _NEAR * size for one in both)
