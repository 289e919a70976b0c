"""Shared weights: a parameter that one side has twice and the other uses in two places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.material import Material
from reprod_log.pairing.values import relative
from reprod_log.recording import Array, Key, Recording

_FIT = 1e-4
"""Gradients of float32 runs add up to this; two gradients that have nothing to do with each other differ by 1."""


@dataclass(frozen=True)
class SharedWeight:
    """A weight of its own on one side, which is another parameter on the other side."""

    separate: str
    """The weight that only one side has."""
    shared: str
    """The reference's name of the parameter that is used in its place on the other side."""
    side: str
    """The side that has both."""


def shared_weights(case: Case) -> tuple[SharedWeight, ...]:
    """Every weight without a partner whose gradient is the missing part of another one's."""
    material = case.material
    if material is None or not material.steps:
        return ()
    return tuple(
        found
        for one in case.comparison.unmatched
        if (key := one.key).phase == "parameter" and not key.run and key.step == material.steps[0]
        for found in _partner(material, key.path, one.side)
    )


def _partner(material: Material, path: str, side: str) -> Iterable[SharedWeight]:
    recording = material.candidate if side == "candidate" else material.reference
    step = material.steps[0]
    own = _best(recording, Key(path, "gradient", step, role="raw"))
    if own is None or not own.any():
        return
    for key, (ours, theirs) in material.each("gradient", step, "raw"):
        whole, part = (ours, theirs) if side == "candidate" else (theirs, ours)
        # A gradient that is the same on both sides lacks nothing.
        if relative(whole, part) > _FIT and any(
            relative(whole, part + turned) <= _FIT for turned in _turned(own, whole)
        ):
            yield SharedWeight(path, key.path, side)
            return


def _turned(array: Array, like: Array) -> Iterator[Array]:
    """The array as it is and transposed, where the shape fits: frameworks keep linear weights either way."""
    for one in (array, array.T):
        if one.shape == like.shape:
            yield one


def _best(recording: Recording, key: Key) -> Array | None:
    for name in (key.in_run("float64"), key):
        if name in recording:
            return recording[name].array().astype(np.float64)
    return None
