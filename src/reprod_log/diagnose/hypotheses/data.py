"""Data that differ: another order of samples, another step's batch, channels the other way round, normalised twice."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import numpy as np

from reprod_log.diagnose.case import Case
from reprod_log.diagnose.finding import Finding
from reprod_log.diagnose.material import Material
from reprod_log.pairing.layouts import arrangement
from reprod_log.recording import Array, Key

_MOST_CHANNELS = 4


def look(case: Case) -> Iterable[Finding]:
    material = case.material
    first = case.verdict.first_divergence
    if material is None or first is None or first.key.phase != "data":
        return
    key = first.key
    both = material.values(key)
    if both is None or np.array_equal(*both, equal_nan=True):
        # NaN in both alike is no difference; where it comes from is the word of `not_finite`.
        return
    cause, advice = _said(material, key, *both)
    yield Finding(
        rule="data",
        cause=f"the input {key.role or key.path} differs from step {key.step} on: {cause}",
        evidence=f"the first data entry that is not bit-identical is {key}",
        confidence="consistent",
        advice=advice,
        keys=(first.key,),
    )


def _said(material: Material, key: Key, ours: Array, theirs: Array) -> tuple[str, str]:
    for step in material.steps:
        other = material.values(Key(key.path, key.phase, step, key.call, key.role))
        if other is not None and step != key.step and np.array_equal(other[0], theirs):
            return (
                f"the candidate was fed the batch of step {step} (data order)",
                "feed the same batches in the same order: seed the sampler, or record the batches once and read them",
            )
    if ours.ndim and ours.shape[0] > 1 and _same_rows(ours, theirs):
        return (
            "the same samples in another order (data order)",
            "shuffle both alike: paddle's DataLoader shuffles by numpy's random state, not by paddle.seed",
        )
    for axis in range(1, ours.ndim):
        if 2 <= ours.shape[axis] <= _MOST_CHANNELS:
            for order in permutations(range(ours.shape[axis])):
                if np.array_equal(np.take(ours, order, axis), theirs):
                    return f"channels in the order {order} (RGB and BGR?)", "read images in the same channel order"
    scaled = _affine(ours, theirs)
    if scaled is not None:
        return scaled, "normalise on one place only, with the same mean, deviation and range (0-1 or 0-255)"
    if _padded_elsewhere(ours, theirs):
        return (
            "the same sequences with their padding on the other side (left and right)",
            "pad on the same side: padding_side of the tokenizer, or the collate function",
        )
    known = arrangement(ours, theirs)
    if known is not None:
        return f"the same numbers in another order: {known}", "look for a transposition, flip or crop in the pipeline"
    if np.array_equal(np.sort(ours, None), np.sort(theirs, None)):
        return "the same numbers in another arrangement", "look for a transposition, flip or crop in the pipeline"
    share = float(np.mean(ours != theirs))
    return (
        f"{share:.0%} of the values differ",
        "feed both sides the same recorded arrays before comparing anything else",
    )


def _padded_elsewhere(ours: Array, theirs: Array) -> bool:
    """Whether every row has the same values in the same order once one value is left out at its ends."""
    if ours.ndim != 2:
        return False
    changed = [(one, other) for one, other in zip(ours, theirs, strict=True) if not np.array_equal(one, other)]
    fills = {float(row[place]) for pair in changed for row in pair for place in (0, -1)}
    return any(
        all(np.array_equal(_without_ends(one, fill), _without_ends(other, fill)) for one, other in changed)
        for fill in fills
    )


def _without_ends(row: Array, fill: float) -> Array:
    kept = np.flatnonzero(row != fill)
    return row[kept[0] : kept[-1] + 1] if kept.size else row[:0]


def _same_rows(ours: Array, theirs: Array) -> bool:
    left, right = ours.reshape(ours.shape[0], -1), theirs.reshape(theirs.shape[0], -1)
    return np.array_equal(left[np.lexsort(left.T[::-1])], right[np.lexsort(right.T[::-1])])


def _affine(ours: Array, theirs: Array) -> str | None:
    """theirs = a × ours + b, for all or for each channel."""
    for axes in (None, *range(1, min(ours.ndim, 4))):
        groups = [(ours, theirs)] if axes is None else list(
            zip(np.moveaxis(ours, axes, 0), np.moveaxis(theirs, axes, 0), strict=True)
        )  # fmt: skip
        fits = [_line(one.reshape(-1), other.reshape(-1)) for one, other in groups]
        if len(groups) <= 4 and all(fit is not None for fit in fits):
            shown = ", ".join(f"{fit[0]:.4g}·x {fit[1]:+.4g}" for fit in fits if fit)
            return (
                f"the candidate's is {shown}{' per channel' if len(groups) > 1 else ''} (normalised again, or scaled)"
            )
    return None


def _line(ours: Array, theirs: Array) -> tuple[float, float] | None:
    spread = ours - ours.mean()
    size = float(np.vdot(spread, spread))
    if ours.size < 4 or not size:
        return None
    slope = float(np.vdot(spread, theirs - theirs.mean())) / size
    shift = float(theirs.mean() - slope * ours.mean())
    error = float(np.abs(theirs - slope * ours - shift).max())
    return (slope, shift) if slope and error <= 1e-5 * max(float(np.abs(theirs).max()), 1e-30) else None
